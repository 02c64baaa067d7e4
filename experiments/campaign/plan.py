"""The plan: the runs of a matrix in their order, and why this cluster can't run some of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from experiments.cluster.abilities import why_no_conditions, why_not_some_slots
from experiments.cluster.description import Cluster
from experiments.cluster.environment import NEWEST
from experiments.cluster.placement import given_nodes, why_no_rank_0
from experiments.cluster.room import differences, why_no_room, why_no_slow_worker
from experiments.matrix.model import Matrix
from experiments.matrix.seeds import WARM_UP_SEEDS
from experiments.matrix.specification import NO_DIGEST, ClusterDefaults, make_specification
from experiments.matrix.workers import why_not_shared
from experiments.util.errors import UserError
from experiments.util.models import FrozenModel
from experiments.util.words import listed
from training.spec import RunSpec, explain


class PlannedRun(FrozenModel):
    """One row of the plan."""

    run_id: str
    axes: dict[str, Any]  # the values of the matrix's axes that make this run
    specification: RunSpec
    cannot_run: str | None = None  # why it can't be run on this cluster; None = it can
    written: int = 0  # its place in the matrix, by which reports are ordered
    block: int = 1  # the runs of one seed on one setting of the cluster, from 1 on
    warm_up: bool = False  # recorded, and never counted
    # Other axis values that give the same run on this cluster, such as its own number of threads written out.
    also: list[dict[str, Any]] = Field(default_factory=list)
    # The runs that start together as users of one cluster, including this one; empty: it runs alone.
    together: list[str] = Field(default_factory=list)
    # The workers that it goes to, rank 0's first; empty: its stack chooses; None: of an earlier version.
    nodes: list[str] | None = None

    @property
    def cell(self) -> tuple[tuple[str, str], ...]:
        """A key that is equal for runs that differ only in their seed."""
        return tuple((name, repr(value)) for name, value in self.axes.items() if name != "seed")


def make_plan(matrix: Matrix, cluster: Cluster, data_digests: str | Mapping[str, str]) -> list[PlannedRun]:
    """Every run of `matrix` in running order; those that this cluster can't make say why.

    Block by block (the runs of one seed on one setting of the cluster, such as its link rate), each in the
    matrix's arrangement; before a stack's first run in a block comes its warm-up, if the matrix has any.

    Runs that start together are in one block and follow one another.

    From seed to seed, whatever the cluster's setting, workers that are alike take turns: those of a run on
    fewer than all of them are the same in all that is compared with it.

    Args:
        matrix: what to run.
        cluster: where.
        data_digests: of the data set that all runs take; or that of each, by its specification's digest.

    Raises:
        UserError: a run of `workers: all` is not valid with this cluster's number of workers.
    """
    matrix = matrix.on(len(cluster.workers))
    first_seed = {seed: seeds[0] for seeds in matrix.together for seed in seeds}
    blocks: dict[tuple[str, ...], list[PlannedRun]] = {}
    for at, combination in enumerate(matrix.combinations()):
        run = _planned(matrix, combination, cluster, data_digests)
        conditions = run.specification.conditions
        setting = (conditions.link_rate or "", conditions.pinning, conditions.device)
        seed = run.specification.work.seed
        runs = blocks.setdefault((*setting, str(first_seed.get(seed, seed))), [])
        _add(runs, run.model_copy(update={"written": at}))
    workers = {name: cluster.nodes[name] for name in cluster.workers if name in cluster.nodes}
    alike = not differences(workers)
    turns = {seed: turn if alike else 0 for turn, seed in enumerate(dict.fromkeys(key[-1] for key in blocks))}
    plan: list[PlannedRun] = []
    for number, (key, runs) in enumerate(blocks.items(), start=1):
        runs = [_placed(run, cluster, turns[key[-1]]) for run in runs]
        if matrix.order.arrangement == "random":
            random.Random(f"{matrix.order.seed} {key}").shuffle(runs)
        runs = _with_partners(runs, first_seed)
        warmed = _with_warm_ups(runs) if matrix.order.warm_ups else runs
        plan += [run.model_copy(update={"block": number}) for run in warmed]
    return plan


def _add(runs: list[PlannedRun], run: PlannedRun) -> None:
    """Adds a run to its block; if the same run is there already, notes only the other axes."""
    for at, other in enumerate(runs):
        if other.run_id == run.run_id:
            kept, gone = (run, other) if other.cannot_run and not run.cannot_run else (other, run)
            runs[at] = kept.model_copy(update={"also": [*other.also, gone.axes]})
            return
    runs.append(run)


def _placed(run: PlannedRun, cluster: Cluster, turn: int) -> PlannedRun:
    return run.model_copy(update={"nodes": given_nodes(run.specification, cluster, turn)})


def _with_partners(runs: Sequence[PlannedRun], first_seed: dict[int, int]) -> list[PlannedRun]:
    """The runs of a block in order, except that those that start together follow the first of them."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        seed = first_seed.get(run.specification.work.seed)
        groups.setdefault(run.run_id if seed is None else _run_id_with(run, seed), []).append(run)
    return [run for group in groups.values() for run in (_partners(group) if len(group) > 1 else group)]


def _run_id_with(run: PlannedRun, seed: int) -> str:
    work = run.specification.work.model_copy(update={"seed": seed})
    return run.specification.model_copy(update={"work": work}).run_id


def _partners(group: list[PlannedRun]) -> list[PlannedRun]:
    group = sorted(group, key=lambda run: run.written)
    ids = [run.run_id for run in group]
    reason = next((run.cannot_run for run in group if run.cannot_run is not None), None)
    if any(run.specification.conditions.slow_worker is not None for run in group):
        # The first to end would give the worker its speed back.
        reason = reason or "Runs that start together can't have a slow worker (slow_worker)."
    if any(run.specification.conditions.trace is not None for run in group):
        # All that is said of them is how long they wait and take.
        reason = reason or "Runs that start together are compared by their times, which a trace disturbs."
    if any(run.specification.bare for run in group):
        reason = reason or "Runs that start together are users who train; an empty program starts alone."
    return [run.model_copy(update={"together": ids, "cannot_run": reason}) for run in group]


def _with_warm_ups(runs: list[PlannedRun]) -> Iterator[PlannedRun]:
    """The runs of a block, with a warm-up before each stack's first run; one for each place of rank 0."""
    warm: set[tuple[str, str]] = set()
    for run in runs:
        if _warmed_by(run) not in warm:
            warm.add(_warmed_by(run))
            yield _warm_up(other for other in runs if _warmed_by(other) == _warmed_by(run))
        yield run


def _warmed_by(run: PlannedRun) -> tuple[str, str]:
    """What runs have in common that one warm-up is enough for."""
    return run.specification.stack, run.specification.conditions.rank_0


def _warm_up(runs: Iterable[PlannedRun]) -> PlannedRun:
    """One epoch of the run with the most workers, so that it uses every node that takes part.

    It trains, and without a trace, whatever the run does.
    """
    run = max(runs, key=lambda run: (run.cannot_run is None, run.specification.work.world_size))
    work, conditions = run.specification.work, run.specification.conditions
    specification = run.specification.model_copy(
        update={
            "work": work.model_copy(update={"epochs": 1, "seed": WARM_UP_SEEDS + work.seed}),
            "conditions": conditions.model_copy(update={"trace": None, "program": "training"}),
        }
    )
    axes = {**run.axes, "epochs": 1, "seed": specification.work.seed}
    return run.model_copy(
        update={
            "run_id": specification.run_id,
            "axes": axes,
            "specification": specification,
            "warm_up": True,
            "also": [],
            "together": [],
        }
    )


def _planned(
    matrix: Matrix, combination: dict[str, Any], cluster: Cluster, data_digests: str | Mapping[str, str]
) -> PlannedRun:
    excluded = matrix.excluded(combination)
    if isinstance(data_digests, str):
        data_digest = data_digests
    elif excluded is None:
        data_digest = data_digests[matrix.data_spec(combination).digest]
    else:  # its data set is prepared only if another run takes it
        data_digest = data_digests.get(matrix.data_spec(combination).digest, NO_DIGEST)
    try:
        specification = make_specification(matrix, combination, data_digest, _defaults(cluster))
    except ValidationError as error:
        run = ", ".join(f"{name}={value}" for name, value in combination.items())
        raise UserError(explain(error, f"On this cluster the matrix {matrix.name} (with {run})")) from error
    return PlannedRun(
        run_id=specification.run_id,
        axes=combination,
        specification=specification,
        cannot_run=excluded
        or why_too_few_threads(matrix, cluster)
        or why_not_shared(matrix.global_batch(combination), specification.work.world_size)
        or why_not(specification, cluster),
    )


def _defaults(cluster: Cluster) -> ClusterDefaults:
    """The cluster's values for what the matrix leaves open."""
    conditions = {
        "pinning": cluster.pinning,
        "device": cluster.device,
        "link_rate": cluster.link.configured,
        "rank_environment": cluster.rank_environment,
    }
    threads = {} if cluster.threads is None else {"threads": cluster.threads}
    return ClusterDefaults(cluster.slots_per_worker, conditions | threads)


def why_too_few_threads(matrix: Matrix, cluster: Cluster) -> str | None:
    """Why the cluster's ranks are too small for what the matrix asks; None if they are not."""
    least, there = matrix.needs.threads, cluster.threads
    if there is None or there >= least:
        return None
    return (
        f"The matrix {matrix.name} needs {least} threads for each rank, and the inventory gives {there} "
        "(worker_threads); take one with larger workers, such as inventory/one-worker."
    )


def why_no_compiler(mode: str, cluster: Cluster) -> list[str]:
    """Why workers can't compile a model in this mode, if they can't."""
    without = [name for name in cluster.workers if not cluster.nodes[name].compiles]
    if not without:
        return []
    return [
        f"for compile: {mode} workers need a C++ compiler and Python's headers, and {listed(without)} "
        f"{'has' if len(without) == 1 else 'have'} none; set environment_compiler: true in the inventory, "
        "and run make provision"
    ]


def why_not(specification: RunSpec, cluster: Cluster) -> str | None:
    """Why `cluster` can't run `specification`, in one sentence; None if it can."""
    stack, work, conditions = specification.stack, specification.work, specification.conditions
    reasons = []
    if stack not in cluster.stacks:
        missing = cluster.stacks_missing.get(stack)
        reasons.append(f"{stack} is not on this cluster" + (f": {missing.rstrip('.')}" if missing else ""))
    if work.workers > len(cluster.workers):
        reasons.append(f"it takes {work.workers} workers and the inventory has {len(cluster.workers)}")
    if work.slots_per_worker > cluster.slots_per_worker:
        reasons.append(
            f"it takes {work.slots_per_worker} slots on a worker and there are {cluster.slots_per_worker}"
        )
    for name, asked, there in (
        ("device", conditions.device, cluster.device),
        ("pinning", conditions.pinning, cluster.pinning),
        ("link rate", conditions.link_rate, cluster.link.configured),
    ):
        if asked != there:
            reasons.append(
                f"the matrix asks for the {name} {asked or 'not limited'}, "
                f"and the cluster's is {there or 'not limited'}"
            )
    reasons += why_no_room(specification, cluster) + why_no_slow_worker(specification, cluster)
    reasons += why_no_rank_0(specification, cluster)
    if conditions.libraries == "newest" and NEWEST not in cluster.environments:
        reasons.append(
            "the nodes have no environment with the newest libraries, or not all the same one; set "
            "environment_newest: true in the inventory, and run make provision for all nodes"
        )
    if conditions.compile:
        reasons += why_no_compiler(conditions.compile, cluster)
    if conditions.launcher == "none" and work.slots_per_worker > 1:
        reasons.append(
            f"without a launcher a worker has one rank, and it takes {work.slots_per_worker} slots on each"
        )
    reasons += why_not_some_slots(stack, work, cluster.slots_per_worker)
    reasons += why_no_conditions(stack, conditions)
    if not reasons:
        return None
    text = "; ".join(reasons)
    return f"{text[:1].upper()}{text[1:]}." if not text.startswith(stack) else f"{text}."
