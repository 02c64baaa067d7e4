"""On which nodes the stacks' ranks ran, who put them there, and in which pairs they were on the same ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from experiments.analysis.figures import Figures
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record

By = Literal["turns", "plan", "stack"]
"""Who chose workers: the plan, by turns; the plan, always alike; the stack itself."""


@dataclass(frozen=True)
class Placement:
    """On which nodes a stack's ranks ran, over all its runs."""

    stack: str
    nodes: list[str]
    runs: int
    runs_on_master: int  # those with a rank on the master, which has the stacks' services
    submitted_on: list[str]  # nodes that its command ran on; none in older records
    beside_ranks: int  # runs whose command shared a node with a rank of them
    fewest: int  # ranks of a run on a node where it had any
    most: int
    by: By | None  # who chose the workers of runs on fewer than all; None: not known, or there are none
    smaller: dict[str, int]  # of these runs, those with a rank on a node, by node
    baseline: str
    pairs: int  # with runs of the baseline that differ only in their stack
    same_nodes: int  # of these: every node had as many ranks
    same_rank_0: int  # of these: rank 0 was on the same node


def placements(figures: Figures) -> list[Placement]:
    """Where the ranks of each stack ran; without the runs that a stand-in made."""
    own = {record.run_id: record for record in figures.counting if record.standin is None}
    planned = [run for run in figures.campaign.measured if run.run_id in own]
    base = {
        _pair(run): own[run.run_id]
        for run in planned
        if run.specification.stack == figures.campaign.baseline and not run.together
    }
    stacks = dict.fromkeys(record.specification.stack for record in own.values())
    by_stack = {stack: [run for run in planned if run.specification.stack == stack] for stack in stacks}
    return [
        _placement(figures, stack, [(run, own[run.run_id]) for run in runs], base)
        for stack, runs in by_stack.items()
    ]


def _placement(
    figures: Figures, stack: str, runs: Sequence[tuple[PlannedRun, Record]], base: dict[str, Record]
) -> Placement:
    workers, baseline = len(figures.campaign.environment.workers), figures.campaign.baseline
    ranks_on = [_ranks_on(record) for _, record in runs]
    masters = [
        {name for name, node in record.environment.nodes.items() if "master" in node.groups}
        for _, record in runs
    ]
    counts = [count for on in ranks_on for count in on.values()]
    smaller = [(run, record) for run, record in runs if run.specification.work.workers < workers]
    pairs = [
        (record, base[_pair(run)])
        for run, record in runs
        if stack != baseline and not run.together and _pair(run) in base
    ]
    return Placement(
        stack,
        nodes=sorted({name for on in ranks_on for name in on}),
        runs=len(runs),
        submitted_on=sorted({host for _, record in runs for host in _hosts(record)}),
        beside_ranks=sum(
            not set(_hosts(record)).isdisjoint(on) for (_, record), on in zip(runs, ranks_on, strict=True)
        ),
        runs_on_master=sum(not master.isdisjoint(on) for master, on in zip(masters, ranks_on, strict=True)),
        fewest=min(counts),
        most=max(counts),
        by=_by([run for run, _ in smaller]),
        smaller=dict(sorted(Counter(name for _, record in smaller for name in _ranks_on(record)).items())),
        baseline=baseline,
        pairs=len(pairs),
        same_nodes=sum(_ranks_on(one) == _ranks_on(other) for one, other in pairs),
        same_rank_0=sum(_rank_0_on(one) == _rank_0_on(other) for one, other in pairs),
    )


def _hosts(record: Record) -> list[str]:
    return record.launch.hosts if record.launch is not None else []


def _by(runs: Sequence[PlannedRun]) -> By | None:
    """Who chose the workers of these runs of one stack, by the plan."""
    if not runs or any(run.nodes is None for run in runs):
        return None
    first = {run.nodes[0] for run in runs if run.nodes}
    if not first:
        return "stack"
    return "turns" if len(first) > 1 else "plan"


def _pair(run: PlannedRun) -> str:
    """The same for runs that differ only in their stack."""
    return repr(sorted((name, repr(value)) for name, value in run.axes.items() if name != "stack"))


def _ranks_on(record: Record) -> Counter[str]:
    """How many ranks of a run were on each node."""
    return Counter(rank.node or rank.host for rank in record.ranks)


def _rank_0_on(record: Record) -> str | None:
    return next((rank.node or rank.host for rank in record.ranks if rank.rank == 0), None)
