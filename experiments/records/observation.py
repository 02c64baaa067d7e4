"""What was requested of an attempt, and what the controller observed of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from experiments.cluster.environment import Environment
from experiments.cluster.quiet import Quiet
from experiments.records.record import ConcurrentStart
from training.spec import RunSpec


@dataclass(frozen=True)
class Request:
    """What an attempt is to run, and on what."""

    matrix: str
    campaign: str
    attempt: int
    specification: RunSpec
    code_digest: str
    source_digest: str  # of the same code as the ranks see it
    uid: int | None  # of the user that training is to run as; None where the cluster doesn't say
    environment: Environment


@dataclass
class Observation:
    """What the controller observed of an attempt."""

    started: datetime
    ended: datetime | None = None
    total_s: float | None = None
    exit_code: int | None = None  # of run.yml; None = it was stopped, or nobody saw it end
    interrupted: str | None = None  # why the attempt was cut short, in a sentence
    never_began: str | None = None  # why nothing was started on the nodes, in a sentence
    epochs_seen: list[dict[str, Any]] = field(default_factory=list)  # from the live progress
    notes: list[str] = field(default_factory=list)
    quiet: Quiet | None = None  # how quiet the nodes were before
    together: ConcurrentStart | None = None  # the runs that it began with
