"""What the figures of a campaign say against one another, and beside the dissertation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.analysis.dissertation import Reference
from experiments.analysis.figures import Cell, Figures, setting_text
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Ratio, Split, ratios_together, split
from experiments.analysis.verdicts import verdict

STEPS: Final = {1: 782, 2: 391}  # of the dissertation's epochs: 25,000 reviews, 32 for each worker


@dataclass(frozen=True)
class Compared:
    """A cell's train_s over the baseline's, run by run with the same seed."""

    cell: Cell
    ratio: Ratio
    verdict: str

    @property
    def corrected_p(self) -> float | None:
        """By Holm, for all comparisons of the table; None with one pair."""
        return self.ratio.p


@dataclass(frozen=True)
class Parts:
    """train_s of a stack on so many workers as a fixed part and a part per step."""

    stack: str
    workers: int
    setting: str  # the values of the matrix's other axes
    here: Split
    there: Split | None  # the dissertation's


def comparisons(figures: Figures) -> list[Compared]:
    """Every cell of another stack than the baseline that has runs to be paired with the baseline's."""
    found = []
    for cell in figures.cells:
        base = sibling(figures.cells, cell, stack=figures.campaign.baseline)
        if cell.stack == figures.campaign.baseline or base is None:
            continue
        ratio = time_ratio(paired_by_seed(cell.records, base.records))
        if ratio is not None:
            found.append((cell, ratio))
    together = ratios_together([ratio for _, ratio in found])
    return [
        Compared(cell, ratio, verdict(ratio, ratio.p))
        for (cell, _), ratio in zip(found, together, strict=True)
    ]


def parts(figures: Figures, reference: Reference) -> list[Parts]:
    """The split of every stack's time, where there are runs of two lengths."""
    points: dict[tuple[str, int, str], dict[int, list[tuple[float, float]]]] = {}
    for cell in figures.cells:
        measured = points.setdefault((cell.stack, cell.workers, setting_text(cell.axes)), {})
        for record in cell.records:
            work = record.specification.work
            if record.train_s is not None:
                point = (work.steps_per_epoch * work.epochs, record.train_s)
                measured.setdefault(work.seed, []).append(point)
    found = []
    for (stack, workers, setting), measured in points.items():
        here = split(measured)
        if here is not None:
            there = _reference_split(reference, stack, workers)
            found.append(Parts(stack, workers, setting, here, there))
    return found


def _reference_split(reference: Reference, stack: str, workers: int) -> Split | None:
    runs = [reference.run(stack, workers, epochs) for epochs in (20, 100)]
    if workers not in STEPS:
        return None
    # Which of its runs share a seed the dissertation doesn't say: one line, without an interval.
    return split({0: [(STEPS[workers] * run.epochs, run.seconds) for run in runs if run is not None]})


def sibling(cells: Sequence[Cell], cell: Cell, **changed: Any) -> Cell | None:
    """The cell that differs from `cell` only in what is `changed`."""
    wanted = cell.axes | changed
    return next((other for other in cells if other.axes == wanted), None)
