"""The stacks against the baseline, and the time of each as a fixed part and a part per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.analysis.dissertation import LONG, SHORT, Dissertation
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Ratio, Split, ratios_together, split
from experiments.analysis.verdicts import Outcome, outcome

STEPS: Final = {1: 782, 2: 391}  # per epoch of the dissertation, by workers: 25,000 reviews, 32 per worker


@dataclass(frozen=True)
class StackComparison:
    """A cell's train_s over the baseline's, paired by seed; p is corrected for all comparisons."""

    cell: Cell
    ratio: Ratio

    @property
    def outcome(self) -> Outcome:
        """What the ratio shows."""
        return outcome(self.ratio)


@dataclass(frozen=True)
class TimeSplit:
    """A stack's train_s with this many workers, as a fixed part and a part per step."""

    stack: str
    workers: int
    settings: dict[str, Any]  # the values of the matrix's other axes
    here: Split
    dissertation: Split | None


def comparisons(figures: Figures) -> list[StackComparison]:
    """Every cell of a stack other than the baseline whose runs can be paired with the baseline's."""
    found = []
    for cell in figures.cells:
        base = sibling(figures.cells, cell, stack=figures.campaign.baseline)
        if cell.stack == figures.campaign.baseline or base is None:
            continue
        ratio = time_ratio(paired_by_seed(cell.records, base.records))
        if ratio is not None:
            found.append((cell, ratio))
    together = ratios_together([ratio for _, ratio in found])
    return [StackComparison(cell, ratio) for (cell, _), ratio in zip(found, together, strict=True)]


def time_splits(figures: Figures, dissertation: Dissertation) -> list[TimeSplit]:
    """The split of every stack's time, where there are runs of two lengths."""
    groups: dict[str, list[Cell]] = {}  # cells that differ only in epochs
    for cell in figures.cells:
        groups.setdefault(repr((cell.stack, cell.workers, cell.settings)), []).append(cell)
    found = []
    for cells in groups.values():
        points: dict[int, list[tuple[float, float]]] = {}
        for record in (record for cell in cells for record in cell.records):
            work = record.specification.work
            if record.train_s is not None:
                point = (work.steps, record.train_s)
                points.setdefault(work.seed, []).append(point)
        here, first = split(points), cells[0]
        if here is not None:
            simulated = figures.campaign.simulated
            there = None if simulated else _published_split(dissertation, first.stack, first.workers)
            found.append(TimeSplit(first.stack, first.workers, first.settings, here, there))
    return found


def _published_split(dissertation: Dissertation, stack: str, workers: int) -> Split | None:
    runs = [dissertation.run(stack, workers, epochs) for epochs in (SHORT, LONG)]
    if workers not in STEPS:
        return None
    # The dissertation doesn't say which of its runs share a seed: one line, without an interval.
    return split({0: [(STEPS[workers] * run.epochs, run.seconds) for run in runs if run is not None]})


def sibling(cells: Sequence[Cell], cell: Cell, **changed: Any) -> Cell | None:
    """The cell that differs from `cell` only in what is `changed`."""
    wanted = cell.axes | changed
    return next((other for other in cells if other.axes == wanted), None)
