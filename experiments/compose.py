"""Composing the record of an attempt from what was brought home, and judging whether the run counts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.archive import file_sha256
from experiments.cause import cause_of_failure, without_secrets
from experiments.quiet import Quiet
from experiments.rank_use import RankUse
from experiments.records import Environment, Epoch, Launch, Prepared, Rank, RankGpu, Record, Status, Together
from training.spec import PHASES, RunSpec, explain

OUTSIDE: Final = ("queue", "launch", "shutdown")  # phases that training itself can't see
CLOCK_TOLERANCE_S: Final = 0.05  # less is no sign of clocks that differ: a process's start is known to 0.01 s


class _Left(BaseModel):
    """What training leaves; it may say more than is used here."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _LeftTimes(_Left):
    process_start: float
    train_start: float
    train_end: float


class _LeftRank(_Left):
    rank: Annotated[int, Field(ge=0)]
    local_rank: Annotated[int, Field(ge=0)]
    world_size: int
    host: str
    uid: int
    affinity: list[int]
    threads: int
    interop_threads: int
    omp_num_threads: str | None = Field(default=None, alias="OMP_NUM_THREADS")
    visible_gpus: str | None = Field(default=None, alias="CUDA_VISIBLE_DEVICES")
    gpu: RankGpu | None = None
    use: RankUse | None = None
    parameters: int | None = None
    cpu_capability: str
    versions: dict[str, str]
    environment_digest: str | None = None
    code_digest: str | None = None
    times: _LeftTimes
    phases: dict[str, Annotated[float, Field(ge=0)]]
    train_s: Annotated[float, Field(ge=0)]
    steps: int
    weights_digest: str


class _LeftEpoch(_Left):
    epoch: Annotated[int, Field(ge=1)]
    train_loss: float | None = None  # None: not a number any more
    seconds: Annotated[float, Field(ge=0)]
    lr: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    validation_correct: int | None = None
    validation_count: int | None = None


class _LeftResult(_Left):
    status: str
    epochs: list[_LeftEpoch]
    weights_digest: str
    validation_count: int


class _LeftLaunch(_Left):
    stack: str
    started: float
    ended: float
    exit_code: int
    command: list[str]
    nodes: list[str] = Field(default_factory=list)


class _LeftPrepared(_Left):
    started: float
    ended: float
    by: str
    rows: Annotated[int, Field(ge=0)]


class _LeftLauncher(_Left):
    queue_s: Annotated[float, Field(ge=0)]
    hosts: dict[str, str] = Field(default_factory=dict)  # node by the host names that ranks see, where others
    notes: list[str] = Field(default_factory=list)  # what the stack did that a reader of the times must know


class _LeftUnreadable(Exception):
    """A file that was brought home is damaged."""


@dataclass(frozen=True)
class Asked:
    """What an attempt was to be."""

    matrix: str
    campaign: str
    attempt: int
    specification: RunSpec
    code_digest: str
    source_digest: str  # of the same code as the ranks see it
    uid: int | None  # of the user that training is to run as; None where the cluster doesn't say
    environment: Environment


@dataclass
class Happened:
    """What the controller saw of an attempt."""

    started: datetime
    ended: datetime | None = None
    total_s: float | None = None
    exit_code: int | None = None  # of run.yml; None = it was ended, or nobody saw it end
    interrupted: str | None = None  # why the attempt was cut short, in a sentence
    never_began: str | None = None  # why nothing was started on the nodes, in a sentence
    epochs_seen: list[dict[str, Any]] = field(default_factory=list)  # by the live progress
    notes: list[str] = field(default_factory=list)
    quiet: Quiet | None = None  # how quiet the nodes were before
    together: Together | None = None  # with which other runs it began


Left = TypeVar("Left", bound=_Left)


def compose(asked: Asked, happened: Happened, outputs: Path, ansible_log: Path) -> Record:
    """The record of one attempt, whatever became of it."""
    damaged: list[str] = []

    def read(kind: type[Left], name: str) -> Left | None:
        try:
            return _read(kind, outputs / name)
        except _LeftUnreadable as error:
            damaged.append(str(error))
            return None

    launch = read(_LeftLaunch, "launch.json")
    launcher = read(_LeftLauncher, "launcher.json")
    result = read(_LeftResult, "result.json")
    left = read(_LeftPrepared, "prepared.json")
    prepared = Prepared(**left.model_dump()) if left else None
    ranks = [
        rank
        for number in _rank_numbers(outputs)
        if (rank := read(_LeftRank, f"rank-{number}.json")) is not None
    ]
    notes = [
        *happened.notes,
        *_quiet_notes(happened.quiet),
        *(launcher.notes if launcher else []),
        *_gpu_notes(ranks),
    ]

    status: Status = "ok"
    reason: str | None = None
    if happened.interrupted is not None:
        status, reason = "interrupted", happened.interrupted
    elif happened.never_began is not None:
        status, reason = "failed", happened.never_began
    elif happened.exit_code != 0 or (launch is not None and launch.exit_code != 0):
        status = "failed"
        reason = cause_of_failure(outputs, ansible_log, launch.exit_code if launch else None)
    else:
        faults = damaged or [
            *_faults(asked, launch, result, ranks, outputs),
            *_prepared_faults(asked.specification, prepared),
        ]
        if faults:
            status, reason = "failed", faults[0]
            notes += [f"Also: {fault}" for fault in faults[1:]]

    slowest = max(ranks, key=lambda rank: (rank.train_s, -rank.rank), default=None)
    phases = None
    if launch is not None and slowest is not None and happened.total_s is not None:
        queue_s = launcher.queue_s if launcher else 0.0
        phases = _phases(slowest, launch, queue_s, prepared, happened.total_s, notes)
    epochs = _epochs(result, happened.epochs_seen, notes)
    last = epochs[-1] if epochs and result is not None else None
    work = asked.specification.work
    return Record(
        matrix=asked.matrix,
        campaign=asked.campaign,
        run_id=asked.specification.run_id,
        attempt=asked.attempt,
        specification=asked.specification,
        work_digest=work.digest,
        conditions_digest=asked.specification.conditions.digest,
        code_digest=asked.code_digest,
        status=status,
        reason=reason,
        started=happened.started,
        ended=happened.ended,
        total_s=happened.total_s,
        train_s=slowest.train_s if slowest else None,
        slowest_rank=slowest.rank if slowest else None,
        phases=phases,
        epochs=epochs,
        weights_digest=result.weights_digest if result else None,
        validation_correct=last.validation_correct if last else None,
        validation_count=result.validation_count if result else None,
        ranks=[_rank(rank, asked.environment, launch, launcher) for rank in ranks],
        launch=_launch(launch),
        prepared=prepared,
        environment=asked.environment,
        quiet=happened.quiet,
        together=happened.together,
        notes=notes,
        files={path.relative_to(outputs).as_posix(): file_sha256(path) for path in _files(outputs)},
    )


def _quiet_notes(quiet: Quiet | None) -> list[str]:
    """What a reader must know of nodes that were not quiet when the run began."""
    if quiet is None or not quiet.disturbed:
        return []
    return [
        f"The nodes were not quiet when it began, after {quiet.waited_s:.0f} s of waiting: "
        f"{'; '.join(quiet.disturbed)}."
    ]


def _gpu_notes(ranks: list[_LeftRank]) -> list[str]:
    """What a reader must know of the GPUs: that one slowed itself down, or was not looked at."""
    notes = []
    for rank in ranks:
        if rank.gpu is None:
            continue
        where = f"Rank {rank.rank}'s GPU ({rank.gpu.name} on {rank.host})"
        if rank.gpu.throttled:
            why = ", ".join(f"{reason} in {share:.0%}" for reason, share in rank.gpu.throttled.items())
            notes.append(f"{where} throttled: {why} of {rank.gpu.samples} samples.".replace("%", " %"))
        if rank.gpu.trouble:
            notes.append(f"{where}: {rank.gpu.trouble}")
    return notes


def _read(kind: type[Left], path: Path) -> Left | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _LeftUnreadable(f"{path.name} can't be read: {error.strerror}.") from error
    except ValidationError as error:
        raise _LeftUnreadable(explain(error, f"{path.name}, as the run left it,")) from error


def _files(outputs: Path) -> list[Path]:
    return sorted(path for path in outputs.rglob("*") if path.is_file() and not path.is_symlink())


def _rank_numbers(outputs: Path) -> list[int]:
    names = (re.fullmatch(r"rank-(\d+)\.json", path.name) for path in outputs.glob("rank-*.json"))
    return sorted(int(name[1]) for name in names if name)


def _faults(
    asked: Asked,
    launch: _LeftLaunch | None,
    result: _LeftResult | None,
    ranks: list[_LeftRank],
    outputs: Path,
) -> list[str]:
    """Why a run whose command succeeded does not count, a sentence each."""
    if launch is None:
        return ["playbooks/run.yml succeeded, but brought no launch.json home."]
    if result is None:
        return ["The stack's command succeeded, but training left no result.json: it did not reach its end."]
    specification, work = asked.specification, asked.specification.work
    faults = []
    if result.status != "ok":
        faults.append(f"Training ended with the status {result.status!r}.")
    if (steps := _resumed_after(outputs)) is not None:
        faults.append(
            f"Training went on from a checkpoint after {steps} steps: its times are those of a part, so that "
            f"the run does not count (its weights: {result.weights_digest[:8]})."
        )
    spec_file = outputs / "spec.json"
    if spec_file.exists():
        try:
            if RunSpec.model_validate_json(spec_file.read_bytes()) != specification:
                faults.append(
                    "The specification that reached the nodes (spec.json) is not the one that was asked for."
                )
        except ValidationError as error:
            faults.append(explain(error, "spec.json, as it reached the nodes,"))
    if [rank.rank for rank in ranks] != list(range(work.world_size)):
        there = ", ".join(str(rank.rank) for rank in ranks) or "none"
        faults.append(f"Of the ranks 0 to {work.world_size - 1} these left their file: {there}.")
    digests = {rank.weights_digest for rank in ranks} | {result.weights_digest}
    if len(digests) > 1:
        shown = ", ".join(f"rank {rank.rank}: {rank.weights_digest[:8]}" for rank in ranks)
        faults.append(f"The weights differ between ranks ({shown}).")
    if result.validation_count != work.data.validation:
        faults.append(
            f"Accuracy was counted over {result.validation_count} reviews, "
            f"but the data set has {work.data.validation} to validate with."
        )
    epochs = [epoch.epoch for epoch in result.epochs]
    if epochs != list(range(1, work.epochs + 1)):
        faults.append(f"Of the epochs 1 to {work.epochs} there are figures for {epochs}.")
    for rank in ranks:
        faults += _rank_faults(asked, rank)
    if len({rank.uid for rank in ranks}) > 1:
        shown = ", ".join(f"{rank.rank}: uid {rank.uid}" for rank in ranks)
        faults.append(f"The ranks ran as different users ({shown}).")
    return faults


def _prepared_faults(specification: RunSpec, prepared: Prepared | None) -> list[str]:
    """What is wrong with how the run came to its tokens."""
    data = specification.work.data
    if specification.conditions.tokenizing != "in_run":
        return ["The run made tokens itself (prepared.json), which it was not asked to."] if prepared else []
    if prepared is None:
        return ["The run was to make its tokens itself, but left no prepared.json."]
    if prepared.rows != data.train + data.validation:
        return [f"The run made tokens of {prepared.rows} reviews instead of {data.train + data.validation}."]
    if not prepared.seconds:
        return ["Making the tokens ended before it began (prepared.json): the node's clock was set."]
    return []


def _resumed_after(outputs: Path) -> int | None:
    """The step after which training last went on from a checkpoint, as a stack may do by itself, or None."""
    resumed = None
    try:
        lines = (outputs / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        try:
            event = json.loads(line)
            if event["event"] == "resume":
                resumed = int(event["steps"])
        except (ValueError, TypeError, KeyError):
            continue  # half a line, of a process that was killed
    return resumed


def _rank_faults(asked: Asked, rank: _LeftRank) -> list[str]:
    specification, faults = asked.specification, []
    if rank.world_size != specification.work.world_size:
        faults.append(
            f"Rank {rank.rank} saw {rank.world_size} ranks instead of {specification.work.world_size}."
        )
    if rank.environment_digest != asked.environment.environment_digest:
        seen = rank.environment_digest[:12] if rank.environment_digest else "none that it knew of"
        faults.append(
            f"Rank {rank.rank} on {rank.host} ran in another environment ({seen}) than the cluster's "
            f"({asked.environment.environment_digest[:12]})."
        )
    if rank.threads != specification.conditions.threads:
        faults.append(
            f"Rank {rank.rank} ran with {rank.threads} threads instead of {specification.conditions.threads}."
        )
    if asked.uid is not None and rank.uid != asked.uid:
        faults.append(f"Rank {rank.rank} ran as uid {rank.uid} instead of {asked.uid}.")
    elif rank.uid == 0:
        faults.append(
            f"Rank {rank.rank} ran as root; training runs as the testbed's own user on every stack."
        )
    if rank.code_digest != asked.source_digest:
        faults.append(f"Rank {rank.rank} on {rank.host} ran other training code than the campaign's.")
    unknown = sorted(set(rank.phases) - set(PHASES))
    if unknown:
        faults.append(f"Rank {rank.rank} reports phases that there are not: {', '.join(unknown)}.")
    return faults


def _phases(
    rank: _LeftRank,
    launch: _LeftLaunch,
    queue_s: float,
    prepared: Prepared | None,
    total_s: float,
    notes: list[str],
) -> dict[str, float]:
    """Where `total_s` went: the slowest rank's own phases, what lies around them, the rest as `other`.

    What the run took to make its tokens is in none of them, wherever it did so: before its stack was
    launched, or between that and the ranks' start.

    Clocks of different nodes are compared for launch and shutdown; they are set by NTP, so that this is good
    to some milliseconds.
    """
    phases = {name: rank.phases.get(name, 0.0) for name in PHASES}
    phases["queue"] = queue_s
    preparing_s = prepared.seconds_within(launch.started, rank.times.process_start) if prepared else 0.0
    phases["launch"] = rank.times.process_start - launch.started - queue_s - preparing_s
    phases["shutdown"] = launch.ended - rank.times.train_end
    for name in OUTSIDE:
        if phases[name] < 0:
            if phases[name] < -CLOCK_TOLERANCE_S:
                notes.append(
                    f"By the nodes' clocks the phase {name} took {phases[name]:.3f} s: the clocks differ, "
                    "and it is counted as 0."
                )
            phases[name] = 0.0
    phases["other"] = 0.0
    # The rest: what training itself has no name for, and Ansible's work before and after the stack's.
    phases["other"] = total_s - sum(phases.values()) - (prepared.seconds if prepared else 0.0)
    if phases["other"] < 0:
        notes.append(
            f"The named phases are {-phases['other']:.3f} s longer than total_s: the nodes' clocks differ."
        )
    return phases


def _epochs(result: _LeftResult | None, seen: list[dict[str, Any]], notes: list[str]) -> list[Epoch]:
    left = result.epochs if result is not None else []
    if result is None:
        for figures in seen:
            try:
                left.append(_LeftEpoch.model_validate(figures))
            except ValidationError:
                notes.append("Figures of an epoch that were seen while it ran could not be read.")
        if left:
            notes.append("The figures of the epochs are those seen while it ran.")
    return [Epoch(**epoch.model_dump()) for epoch in left]


def _rank(
    rank: _LeftRank, environment: Environment, launch: _LeftLaunch | None, launcher: _LeftLauncher | None
) -> Rank:
    named = launcher.hosts.get(rank.host) if launcher else None
    return Rank(
        node=named if named in environment.nodes else _node(rank, environment, launch),
        **rank.model_dump(exclude={"world_size", "code_digest", "times", "phases"}),
    )


def _node(rank: _LeftRank, environment: Environment, launch: _LeftLaunch | None) -> str | None:
    """The inventory's name of the node that a rank ran on."""
    short = rank.host.split(".")[0]
    for name, node in environment.nodes.items():
        if rank.host in (name, node.address) or short == name.split(".")[0]:
            return name
    if launch is not None and rank.rank < len(launch.nodes):
        return launch.nodes[rank.rank]
    return None


def _launch(launch: _LeftLaunch | None) -> Launch | None:
    if launch is None:
        return None
    fields = launch.model_dump()
    fields["command"] = [without_secrets(word) for word in launch.command]
    return Launch(**fields)
