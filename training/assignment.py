"""What a rank is given, and the file in which it says how it went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from training.distributed.liveness import PeerMonitor
from training.metrics.census import Census, take_census, take_second_look
from training.session import Session
from training.spec import RunSpec
from training.util.digest import code_digest
from training.util.files import write_json
from training.util.process import process_facts


@dataclass(frozen=True)
class Assignment:
    """One rank's part of a run."""

    spec: RunSpec
    data: Path  # folder of the prepared data set, on this node
    out: Path  # folder on storage that all ranks share
    begin: Callable[[], Session]  # creates the session; everything before it counts as imports
    peers: PeerMonitor  # watches the other ranks
    process_start: float  # unix time in seconds


@dataclass(frozen=True)
class Moments:
    """When a rank's parts began and ended, in unix seconds."""

    process_start: float
    imports_done: float
    train_start: float
    train_end: float

    @property
    def before(self) -> dict[str, float]:
        """The phases before training, in seconds."""
        return {
            "imports": self.imports_done - self.process_start,
            "rendezvous": self.train_start - self.imports_done,
        }


def note_census(given: Assignment, rank: int, program: int | None = None) -> Census:
    """Write `census-<rank>.json`, and return it: what was given to this rank's process, and what it runs on.

    `program` is the number of the process of a program with a loop of its own: then it is about that one.
    """
    places = {"code": Path(__file__).parent, "data": given.data, "results": given.out}
    census = take_census(places, program)
    write_json(given.out / f"census-{rank}.json", census)
    return census


def note_second_look(given: Assignment, rank: int, census: Census) -> None:
    """Add to `census-<rank>.json` what has changed now that the ranks have met."""
    write_json(given.out / f"census-{rank}.json", census | take_second_look())


def write_rank_file(
    out: Path, session: Session, moments: Moments, phases: dict[str, float], **own: Any
) -> None:
    """Write `rank-<rank>.json`.

    Args:
        out: the run's folder.
        session: this rank's.
        moments: of this rank.
        phases: seconds of each phase of training, by name.
        own: whatever else there is to say; None where it is not known.
    """
    facts = {
        "rank": session.rank,
        "local_rank": session.local_rank,
        "world_size": session.world_size,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "code_digest": code_digest(),
        "times": asdict(moments),
        "phases": moments.before | phases,
    }
    write_json(out / f"rank-{session.rank}.json", process_facts() | facts | own)
