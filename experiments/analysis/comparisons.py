"""The stacks against the baseline, and the time of each as a fixed part and a part per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

from experiments.analysis.dissertation import LONG, SHORT, Dissertation
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import Difference, Ratio, Split, simultaneous, split
from experiments.analysis.verdicts import Outcome, outcome
from experiments.records.record import Record
from training.registry import DEFAULT

BATCH: Final = 32  # of each worker, in the dissertation
STEPS: Final = {1: 782, 2: 391}  # per epoch of the dissertation, by workers: 25,000 reviews, 32 per worker


@dataclass(frozen=True)
class StackComparison:
    """A cell's train_s over the baseline's, paired by seed; the intervals hold for all comparisons."""

    cell: Cell
    ratio: Ratio
    more_a_step: Difference  # seconds of train_s
    published_step_s: float | None  # the dissertation's, by a line through its two lengths
    noise_step_s: float = 0.0  # the noise floor of a step on the baseline

    @property
    def outcome(self) -> Outcome:
        """What the ratio shows."""
        return outcome(self.ratio)

    @property
    def excludes_published(self) -> bool:
        """Whether the dissertation's time of a step is outside of the interval by more than the noise."""
        there, here = self.published_step_s, self.more_a_step
        if there is None or here.low is None or here.high is None:
            return False
        return not here.low - self.noise_step_s <= there <= here.high + self.noise_step_s


@dataclass(frozen=True)
class TimeSplit:
    """A stack's train_s with this many workers, as a fixed part and a part per step."""

    stack: str
    workers: int
    settings: dict[str, Any]  # the values of the matrix's other axes
    here: Split
    dissertation: Split | None


def comparisons(
    figures: Figures, dissertation: Dissertation, floor: float | None = None
) -> list[StackComparison]:
    """Every cell of a stack other than the baseline whose runs can be paired with the baseline's.

    Args:
        figures: the campaign's.
        dissertation: what it measured.
        floor: the noise floor, as a fraction of train_s.
    """
    found = []
    for cell in figures.cells:
        base = sibling(figures.cells, cell, stack=figures.campaign.baseline)
        if cell.stack == figures.campaign.baseline or base is None:
            continue
        if cell.overhead_train is not None:
            pairs = paired_by_seed(cell.records, base.records)
            more = [_more_a_step(*pair) for pair in pairs]
            found.append((cell, cell.overhead_train, more, fmean(_step_s(below) for _, below in pairs)))
    steps = simultaneous([more for _, _, more, _ in found], figures.campaign.looks)
    return [
        StackComparison(
            cell=cell,
            ratio=replace(ratio, floor=floor),
            more_a_step=step,
            published_step_s=_published_step_s(figures, dissertation, cell),
            noise_step_s=(floor or 0.0) * base_step_s,
        )
        for (cell, ratio, _, base_step_s), step in zip(found, steps, strict=True)
    ]


def _more_a_step(above: Record, below: Record) -> float:
    """Seconds of train_s that a step of one run takes more than one of the other's."""
    return _step_s(above) - _step_s(below)


def _step_s(record: Record) -> float:
    return (record.train_s or 0.0) / record.specification.work.steps


def _published_step_s(figures: Figures, dissertation: Dissertation, cell: Cell) -> float | None:
    """What the dissertation's stack takes more for a step than its baseline.

    None if it did not measure both, or if a step of these runs is nothing like one of its: of another kind of
    workload, of another batch, or simulated.
    """
    work = cell.records[0].specification.work
    like = work.workload == DEFAULT and work.batch_per_worker == BATCH and work.slots_per_worker == 1
    if figures.campaign.simulated or not like:
        return None
    stacks = (cell.stack, figures.campaign.baseline)
    own, base = (published_split(dissertation, stack, cell.workers) for stack in stacks)
    return own.step_s - base.step_s if own is not None and base is not None else None


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
            there = None if simulated else published_split(dissertation, first.stack, first.workers)
            found.append(TimeSplit(first.stack, first.workers, first.settings, here, there))
    return found


def published_split(dissertation: Dissertation, stack: str, workers: int) -> Split | None:
    """A stack's time in the dissertation as a fixed part and a part per step; None if it does not tell."""
    runs = [dissertation.run(stack, workers, epochs) for epochs in (SHORT, LONG)]
    if workers not in STEPS:
        return None
    # The dissertation doesn't say which of its runs share a seed: one line, without an interval.
    return split({0: [(STEPS[workers] * run.epochs, run.seconds) for run in runs if run is not None]})


def sibling(cells: Sequence[Cell], cell: Cell, **changed: Any) -> Cell | None:
    """The cell that differs from `cell` only in what is `changed`."""
    wanted = cell.axes | changed
    return next((other for other in cells if other.axes == wanted), None)
