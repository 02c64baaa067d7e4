"""Why a run does not count although its command succeeded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from experiments.cluster.environment import NEWEST, beside
from experiments.records.observation import Request
from experiments.records.outputs import RankFile, ResultFile
from experiments.records.record import Launch, Prepared
from experiments.records.starts import FILES as STARTS
from training.spec import PHASES, RunSpec, explain

NO_LAUNCH: Final = "playbooks/run.yml succeeded, but brought no launch.json home."
BY_TRAINING: Final = ("result.json", "rank-*.json", STARTS, "prepared.json")  # the files that it leaves


def run_faults(
    request: Request,
    launch: Launch | None,
    result: ResultFile | None,
    ranks: list[RankFile],
    outputs: Path,
    *,
    restarted: bool = False,
) -> list[str]:
    """Why a run whose command succeeded does not count, one sentence each.

    If it was started again (`restarted`), it may have resumed from a checkpoint; otherwise it must not.
    """
    if launch is None:
        return [NO_LAUNCH]
    if result is None:
        return ["The stack's command succeeded, but training left no result.json: it did not reach its end."]
    specification, work = request.specification, request.specification.work
    faults = []
    if result.status != "ok":
        faults.append(f"Training ended with the status {result.status!r}.")
    if not restarted and (steps := resumed_after(outputs)) is not None:
        faults.append(
            f"Training went on from a checkpoint after {steps} steps: its times are those of a part, so that "
            f"the run does not count (its weights: {_short(result.weights_digest)})."
        )
    faults += _specification_faults(specification, outputs)
    if [rank.rank for rank in ranks] != list(range(work.world_size)):
        there = ", ".join(str(rank.rank) for rank in ranks) or "none"
        faults.append(f"Of the ranks 0 to {work.world_size - 1} these left their file: {there}.")
    digests = {rank.weights_digest for rank in ranks} | {result.weights_digest}
    if len(digests) > 1:
        shown = ", ".join(f"rank {rank.rank}: {_short(rank.weights_digest)}" for rank in ranks)
        faults.append(f"The weights differ between ranks ({shown}).")
    if not work.data.has_own_loop:
        faults += _count_faults(specification, result)
    faults += _trace_faults(specification, outputs)
    for rank in ranks:
        faults += _rank_faults(request, rank)
    if len({rank.uid for rank in ranks}) > 1:
        shown = ", ".join(f"{rank.rank}: uid {rank.uid}" for rank in ranks)
        faults.append(f"The ranks ran as different users ({shown}).")
    return faults


def bare_faults(specification: RunSpec, launch: Launch | None, outputs: Path) -> list[str]:
    """Why a run of an empty program whose command succeeded does not count, one sentence each.

    It leaves nothing of itself, so all that can be wrong is that something else was started.
    """
    if launch is None:
        return [NO_LAUNCH]
    left = sorted(path.name for pattern in BY_TRAINING for path in outputs.glob(pattern))
    trained = f"The run was to start an empty program, but left {', '.join(left)}: its stack trained."
    return [*([trained] if left else []), *_specification_faults(specification, outputs)]


def _specification_faults(specification: RunSpec, outputs: Path) -> list[str]:
    spec_file = outputs / "spec.json"
    if not spec_file.exists():
        return []
    try:
        if RunSpec.model_validate_json(spec_file.read_bytes()) == specification:
            return []
    except ValidationError as error:
        return [explain(error, "spec.json, as it reached the nodes,")]
    return ["The specification that reached the nodes (spec.json) is not the one that was asked for."]


def _count_faults(specification: RunSpec, result: ResultFile) -> list[str]:
    work, faults = specification.work, []
    wanted = None if specification.conditions.evaluation == "none" else work.data.validation
    if result.validation_count != wanted:
        faults.append(
            f"The metrics were counted over {result.validation_count or 0} samples, "
            f"but {wanted or 0} of the data set are to validate with."
        )
    tested = result.epochs[-1].test.get("count", 0) if result.epochs else 0
    if tested != work.data.test:
        faults.append(
            f"The test split was evaluated over {tested} samples, but the data set has {work.data.test}."
        )
    epochs = [epoch.epoch for epoch in result.epochs]
    if epochs != list(range(1, work.epochs + 1)):
        faults.append(f"Of the epochs 1 to {work.epochs} there are figures for {epochs}.")
    return faults


def prepared_faults(specification: RunSpec, prepared: Prepared | None) -> list[str]:
    """The faults in how the run got its tokens."""
    data = specification.work.data
    if specification.conditions.tokenizing != "in_run":
        return ["The run made tokens itself (prepared.json), which it was not asked to."] if prepared else []
    if prepared is None:
        return ["The run was to make its tokens itself, but left no prepared.json."]
    if prepared.rows != (samples := sum(data.splits.values())):
        return [f"The run made tokens of {prepared.rows} samples instead of {samples}."]
    if not prepared.seconds:
        return ["Making the tokens ended before it began (prepared.json): the node's clock was set."]
    return []


def resumed_after(outputs: Path) -> int | None:
    """The step after which training last resumed from a checkpoint, as stacks may do; None if it didn't."""
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
            continue  # half a line, from a process that was killed
    return resumed


def _short(digest: str | None) -> str:
    return digest[:8] if digest else "none"


def _trace_faults(specification: RunSpec, outputs: Path) -> list[str]:
    """The fault of ranks that left no trace although one was asked for."""
    trace, ranks = specification.conditions.trace, range(specification.work.world_size)
    missing = [] if trace is None else [rank for rank in ranks if not (outputs / trace.file(rank)).is_file()]
    if trace is None or not missing:
        return []
    of = ", ".join(trace.file(rank) for rank in missing)
    return [f"The run was to trace {trace.name} on every rank, but left no {of}."]


def _rank_faults(request: Request, rank: RankFile) -> list[str]:
    specification, faults = request.specification, []
    if rank.world_size != specification.work.world_size:
        faults.append(
            f"Rank {rank.rank} saw {rank.world_size} ranks instead of {specification.work.world_size}."
        )
    expected, name = request.environment.digest_for(specification), beside(specification)
    if rank.environment_digest != expected:
        seen = rank.environment_digest[:12] if rank.environment_digest else "none that it knew of"
        whose = "the cluster's" if name not in request.environment.environments else "its stack's"
        faults.append(
            f"Rank {rank.rank} on {rank.host} ran in another environment ({seen}) than "
            f"{whose if name != NEWEST else 'that of the newest libraries'} ({expected[:12]})."
        )
    if specification.conditions.threads not in ("stack", rank.threads):
        faults.append(
            f"Rank {rank.rank} ran with {rank.threads} threads instead of {specification.conditions.threads}."
        )
    if request.uid is not None and rank.uid != request.uid:
        faults.append(f"Rank {rank.rank} ran as uid {rank.uid} instead of {request.uid}.")
    elif rank.uid == 0:
        faults.append(
            f"Rank {rank.rank} ran as root; training runs as the testbed's own user on every stack."
        )
    if rank.code_digest != request.source_digest:
        faults.append(f"Rank {rank.rank} on {rank.host} ran other training code than the campaign's.")
    unknown = sorted(set(rank.phases) - set(PHASES))
    if unknown:
        faults.append(f"Rank {rank.rank} reports phases that there are not: {', '.join(unknown)}.")
    return faults
