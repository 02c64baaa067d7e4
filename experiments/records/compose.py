"""Composing the record of an attempt from its collected outputs, and judging whether the run counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from experiments.cluster.environment import Environment
from experiments.cluster.quiet import Quiet
from experiments.cluster.room import cores_used, differences, spare_cores
from experiments.records.observation import Observation, Request
from experiments.records.outputs import (
    BrokenFile,
    CensusFile,
    DamagedOutput,
    LauncherFile,
    Output,
    RankFile,
    ResultFile,
    read_output,
)
from experiments.records.reasons import cause_of_failure
from experiments.records.record import Epoch, Launch, Prepared, Record, Start, Status
from experiments.records.starts import read_starts, start_faults, why_disturbed
from experiments.records.validity import bare_faults, prepared_faults, resumed_after, run_faults
from experiments.util.files import file_sha256
from experiments.util.words import counted, listed
from training.spec import PHASES, RunSpec
from training.util.masking import without_secrets

OUTSIDE: Final = ("queue", "launch", "shutdown")  # phases that training itself can't see
CLOCK_TOLERANCE_S: Final = 0.05  # smaller differences prove nothing: a process's start is known to 0.01 s


def compose(request: Request, observed: Observation, outputs: Path, ansible_log: Path) -> Record:
    """The record of one attempt, however it ended."""
    damaged: list[str] = []

    def read(kind: type[Output], name: str) -> Output | None:
        try:
            return read_output(kind, outputs / name)
        except DamagedOutput as error:
            damaged.append(str(error))
            return None

    launch = read(Launch, "launch.json")
    launcher = read(LauncherFile, "launcher.json")
    result = read(ResultFile, "result.json")
    prepared = read(Prepared, "prepared.json")
    broken = read(BrokenFile, "broken.json")
    ranks = [
        rank
        for number in _rank_numbers(outputs)
        if (rank := read(RankFile, f"rank-{number}.json")) is not None
    ]
    censuses = [read(CensusFile, f"census-{rank.rank}.json") for rank in ranks]
    placed = [_node(rank.host, rank.rank, request.environment, launch, launcher) for rank in ranks]
    starts = _starts(request, outputs, launch, launcher, damaged)
    restarted = why_disturbed(starts, resumed_after(outputs)) or (launcher.begun_again if launcher else None)
    notes = [
        *observed.notes,
        *_quiet_notes(observed.quiet),
        *_broken_notes(request.specification, broken),
        *_trace_notes(request.specification),
        *_standin_notes(launcher),
        *(launcher.notes if launcher else []),
        *_gpu_notes(ranks),
        *_unlike_notes(request, placed),
    ]

    status: Status = "ok"
    reason: str | None = None
    if observed.interrupted is not None:
        status, reason = "interrupted", observed.interrupted
    elif observed.never_began is not None:
        status, reason = "failed", observed.never_began
    elif observed.exit_code != 0 or (launch is not None and launch.exit_code != 0):
        status = "failed"
        reason = cause_of_failure(outputs, ansible_log, launch.exit_code if launch else None)
    else:
        faults = damaged or (
            bare_faults(request.specification, launch, outputs)
            if request.specification.bare
            else [
                *run_faults(request, launch, result, ranks, outputs, restarted=restarted is not None),
                *start_faults(starts, request.specification.work.world_size),
                *prepared_faults(request.specification, prepared),
            ]
        )
        if faults:
            status, reason = "failed", faults[0]
            notes += [f"Also: {fault}" for fault in faults[1:]]
        elif restarted is not None:
            status, reason = "disturbed", restarted
    if restarted is not None and reason != restarted:
        notes.append(restarted)

    slowest = max(ranks, key=lambda rank: (rank.train_s, -rank.rank), default=None)
    phases = None
    if launch is not None and slowest is not None and observed.total_s is not None:
        queue_s = launcher.queue_s if launcher else 0.0
        phases = _phases(slowest, launch, queue_s, prepared, observed.total_s, notes)
    epochs = _epochs(result, observed.epochs_seen, notes)
    last = epochs[-1] if epochs and result is not None else None
    work = request.specification.work
    return Record(
        matrix=request.matrix,
        campaign=request.campaign,
        run_id=request.specification.run_id,
        attempt=request.attempt,
        specification=request.specification,
        work_digest=work.digest,
        conditions_digest=request.specification.conditions.digest,
        code_digest=request.code_digest,
        status=status,
        reason=reason,
        started=observed.started,
        ended=observed.ended,
        total_s=observed.total_s,
        train_s=slowest.train_s if slowest else None,
        slowest_rank=slowest.rank if slowest else None,
        phases=phases,
        epochs=epochs,
        weights_digest=result.weights_digest if result else None,
        validation_correct=last.validation_correct if last else None,
        validation_count=result.validation_count if result else None,
        ranks=[
            rank.to_record(node, census) for rank, node, census in zip(ranks, placed, censuses, strict=True)
        ],
        starts=starts,
        launch=launch and _launch(launch, request.environment),
        prepared=prepared,
        standin=launcher.standin if launcher else None,
        environment=request.environment,
        quiet=observed.quiet,
        together=observed.together,
        notes=notes,
        files={path.relative_to(outputs).as_posix(): file_sha256(path) for path in _files(outputs)},
    )


def _launch(launch: Launch, environment: Environment) -> Launch:
    """The launch without secrets, and with the inventory's names of the nodes that its command ran on."""
    hosts = [_named(host, environment) or host for host in launch.hosts]
    return launch.model_copy(
        update={"command": list(map(without_secrets, launch.command)), "hosts": sorted(set(hosts))}
    )


def _starts(
    request: Request,
    outputs: Path,
    launch: Launch | None,
    launcher: LauncherFile | None,
    damaged: list[str],
) -> list[Start]:
    """The starts of all ranks, with the names of their nodes; `damaged` gets what can't be read."""
    try:
        found = read_starts(outputs)
    except DamagedOutput as error:
        damaged.append(str(error))
        return []
    return [
        start.model_copy(
            update={"node": _node(start.host, start.rank, request.environment, launch, launcher)}
        )
        for start in found
    ]


def _quiet_notes(quiet: Quiet | None) -> list[str]:
    """Notes on nodes that were not quiet when the run began."""
    if quiet is None or not quiet.disturbed:
        return []
    return [
        f"The nodes were not quiet when it began, after {quiet.waited_s:.0f} s of waiting: "
        f"{'; '.join(quiet.disturbed)}."
    ]


def _broken_notes(specification: RunSpec, broken: BrokenFile | None) -> list[str]:
    """Notes on other stacks that could not be asked whether something of theirs still ran."""
    return [
        f"When it began, {stack} could not be asked to end what it still ran: {why}"
        for stack, why in (broken.root if broken else {}).items()
        if stack != specification.stack
    ]


def _trace_notes(specification: RunSpec) -> list[str]:
    """A note on a run that was traced: it is disturbed, but on purpose."""
    trace = specification.conditions.trace
    if trace is None:
        return []
    ends = [trace.file(rank) for rank in (0, specification.work.world_size - 1)]
    return [
        f"Disturbed on purpose by a trace of its {trace.name} ({' to '.join(dict.fromkeys(ends))}): its "
        "times are in no mean and no comparison; its weights and metrics count."
    ]


def _standin_notes(launcher: LauncherFile | None) -> list[str]:
    """A note on a run that a stand-in made, in place of its stack's own software."""
    if launcher is None or launcher.standin is None:
        return []
    return [f"{launcher.standin} The run's times are in no table and no plot; its weights and metrics count."]


def _gpu_notes(ranks: list[RankFile]) -> list[str]:
    """Notes on GPUs that throttled or could not be sampled."""
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


def _unlike_notes(request: Request, placed: list[str | None]) -> list[str]:
    """A note on workers of this run that were not alike; `placed` names each rank's node."""
    nodes = request.environment.nodes
    used = {name: node for name, node in nodes.items() if name in placed}
    differ = differences(used)
    if not differ:
        return []
    note = f"Its workers differ in {listed(differ)}."
    if request.specification.conditions.device == "cpu":
        spare = spare_cores(used, cores_used(request.specification))
        told = [f"{counted(number, 'core')} of {name}" for name, number in spare.items()]
        note += f" Spare: {listed(told)}." if told else ""
    return [note]


def _files(outputs: Path) -> list[Path]:
    return sorted(path for path in outputs.rglob("*") if path.is_file() and not path.is_symlink())


def _rank_numbers(outputs: Path) -> list[int]:
    names = (re.fullmatch(r"rank-(\d+)\.json", path.name) for path in outputs.glob("rank-*.json"))
    return sorted(int(name[1]) for name in names if name)


def _phases(
    rank: RankFile,
    launch: Launch,
    queue_s: float,
    prepared: Prepared | None,
    total_s: float,
    notes: list[str],
) -> dict[str, float]:
    """Where `total_s` went: the slowest rank's own phases, those around them, and the rest as `other`.

    The time that the run spent making its tokens is in none of them, whether that was before its stack was
    launched or between the launch and the ranks' start.

    For launch and shutdown, clocks of different nodes are compared; with NTP they agree to a few
    milliseconds.
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
    # The rest: what training has no name for, and Ansible's work before and after the stack's.
    phases["other"] = total_s - sum(phases.values()) - (prepared.seconds if prepared else 0.0)
    if phases["other"] < 0:
        notes.append(
            f"The named phases are {-phases['other']:.3f} s longer than total_s: the nodes' clocks differ."
        )
    return phases


def _epochs(result: ResultFile | None, seen: list[dict[str, Any]], notes: list[str]) -> list[Epoch]:
    if result is not None:
        return result.epochs
    epochs = []
    for figures in seen:
        try:
            epochs.append(Epoch.model_validate(figures, extra="ignore"))
        except ValidationError:
            notes.append("Figures of an epoch that were seen while it ran could not be read.")
    if epochs:
        notes.append("The figures of the epochs are those seen while it ran.")
    return epochs


def _node(
    host: str, rank: int, environment: Environment, launch: Launch | None, launcher: LauncherFile | None
) -> str | None:
    """The inventory's name of the node that a rank ran on, by the name that the rank knew it by."""
    named = launcher.hosts.get(host) if launcher else None
    if named in environment.nodes:
        return named
    if (name := _named(host, environment)) is not None:
        return name
    if launch is not None and rank < len(launch.nodes):
        return launch.nodes[rank]
    return None


def _named(host: str, environment: Environment) -> str | None:
    """The inventory's name of the node with a host name or an address; None if none has it."""
    short = host.split(".")[0]
    for name, node in environment.nodes.items():
        if host in (name, node.address) or short == name.split(".")[0]:
            return name
    return None
