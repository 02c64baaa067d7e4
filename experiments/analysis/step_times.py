"""How long the steps of training took, as each rank saw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.analysis.figures import Cell
from experiments.analysis.statistics import Estimate, estimate
from experiments.records.record import StepTimes


@dataclass(frozen=True)
class RankSteps:
    """The steps of a cell's runs on one rank, in milliseconds."""

    cell: Cell
    rank: int
    nodes: list[str]  # that it ran on
    median: Estimate  # of the runs' medians
    p95: float  # means over the runs
    p99: float
    longest: float  # of all runs
    runs: int


def rank_steps(cells: Sequence[Cell]) -> list[RankSteps]:
    """Every rank of every cell; runs that are not timed, or don't have their steps' times, are left out."""
    found = []
    for cell in cells:
        by_rank: dict[int, list[tuple[str, StepTimes]]] = {}
        for rank in (rank for record in cell.timed for rank in record.ranks):
            if rank.step_times is not None:
                by_rank.setdefault(rank.rank, []).append((rank.node or rank.host, rank.step_times))
        for number, placed in sorted(by_rank.items()):
            times = [each for _, each in placed]
            median = estimate([each.median_ms for each in times])
            assert median is not None  # there is at least one
            found.append(
                RankSteps(
                    cell=cell,
                    rank=number,
                    nodes=sorted({node for node, _ in placed}),
                    median=median,
                    p95=fmean(each.p95_ms for each in times),
                    p99=fmean(each.p99_ms for each in times),
                    longest=max(each.longest_ms for each in times),
                    runs=len(times),
                )
            )
    return found
