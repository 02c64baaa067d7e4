"""Time to quality: how long runs train until an evaluation reaches the matrix's target.

Runs that never reach it are right-censored: all that is known is that it would have taken them longer than
they trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Any

from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.statistics import MedianTime, Ratio, median_time, paired_ratio, ratios_together
from experiments.matrix.target import Target
from experiments.records.record import Record


@dataclass(frozen=True)
class RunToTarget:
    """Whether and when a run reached the target."""

    record: Record
    epoch: int | None  # of the first evaluation that reached it; None: none did
    seconds: float | None  # of training until that evaluation's end, else all of train_s; None: not timed

    @property
    def seed(self) -> int:
        """By which it is paired with a run of another stack."""
        return self.record.specification.work.seed


@dataclass(frozen=True)
class CellToTarget:
    """The runs of a cell that evaluated the target's metric; the intervals of `ratio` hold for all cells."""

    cell: Cell
    runs: list[RunToTarget]
    time: MedianTime | None  # None: no run is timed
    ratio: Ratio | None  # of the seconds over the baseline's, by pairs of one seed that both reached it

    @property
    def epochs(self) -> list[int]:
        """The epoch after which each run that reached the target did."""
        return [run.epoch for run in self.runs if run.epoch is not None]

    @property
    def epoch_s(self) -> float:
        """Mean seconds of an epoch, with its evaluation, over all epochs of the runs."""
        return fmean(epoch.seconds for run in self.runs for epoch in run.record.epochs)


@dataclass(frozen=True)
class SameSeed:
    """Runs of one seed that differ only in their stack."""

    axes: dict[str, Any]  # with the seed, without the stack
    epochs: dict[str, int | None]  # after which each stack's reached the target; None: it never did

    @property
    def alike(self) -> bool:
        """Whether all reached it after the same epoch, or none did."""
        return len(set(self.epochs.values())) == 1


@dataclass(frozen=True)
class ToQuality:
    """What the runs say about the time to the matrix's target."""

    target: Target
    cells: list[CellToTarget]
    seeds: list[SameSeed]  # those that more than one stack has
    without: int  # runs that count and have no value of the metric
    metrics: list[str]  # those that there are, if no run has the target's


def to_quality(figures: Figures, floor: float | None = None) -> ToQuality | None:
    """The times to the target, cell by cell; None if the matrix has none.

    Args:
        figures: the campaign's.
        floor: the noise floor, as a fraction of train_s, of which these times are parts.
    """
    target = figures.campaign.target
    if target is None:
        return None
    found = {
        id(cell): [run for record in cell.records if (run := run_to_target(record, target)) is not None]
        for cell in figures.cells
    }
    cells = []
    for cell in (each for each in figures.cells if found[id(each)]):
        runs = found[id(cell)]
        base = sibling(figures.cells, cell, stack=figures.campaign.baseline)
        pairs = [] if base is None or base is cell else _pairs(runs, found[id(base)])
        timed = [(run.seconds, run.epoch is not None) for run in runs if run.seconds is not None]
        time = median_time(
            [seconds for seconds, reached in timed if reached],
            [seconds for seconds, reached in timed if not reached],
        )
        cells.append(CellToTarget(cell, runs, time, paired_ratio(pairs)))
    ratios = [each.ratio for each in cells if each.ratio]
    together = iter(ratios_together(ratios, figures.campaign.looks))
    cells = [
        replace(each, ratio=replace(next(together), floor=floor)) if each.ratio else each for each in cells
    ]
    counting = [record for cell in figures.cells for record in cell.records]
    return ToQuality(
        target=target,
        cells=cells,
        seeds=_seeds(cells),
        without=len(counting) - sum(len(each.runs) for each in cells),
        metrics=[] if cells else _metrics(counting),
    )


def run_to_target(record: Record, target: Target) -> RunToTarget | None:
    """When a run reached the target; None if no evaluation of it has a (finite) value of the metric."""
    values = [epoch.metric(target.metric) for epoch in record.epochs]
    if all(value is None for value in values):
        return None
    met = (at for at, value in enumerate(values) if value is not None and target.is_met_by(value))
    first = next(met, None)
    if first is None:
        return RunToTarget(record, None, record.train_s)
    return RunToTarget(record, record.epochs[first].epoch, _seconds_until(record, first))


def _seconds_until(record: Record, at: int) -> float | None:
    """Seconds of train_s until the end of the epoch at this place, with its evaluation; None: not timed.

    A program's first epoch begins when the program does. That of the training loop begins after its set-up,
    so there the later epochs are taken off train_s; checkpoints and a test after the evaluation are not, as
    records don't have their times.
    """
    if record.train_s is None:
        return None
    until, later = record.epochs[: at + 1], record.epochs[at + 1 :]
    if record.specification.work.data.has_own_loop:
        return sum(epoch.seconds for epoch in until)
    return record.train_s - sum(epoch.seconds for epoch in later)


def _pairs(ours: Sequence[RunToTarget], base: Sequence[RunToTarget]) -> list[tuple[float, float]]:
    """The seconds of runs with the same seed that both reached the target and are timed."""
    times = {run.seed: run.seconds for run in base if run.epoch is not None and run.seconds is not None}
    return [
        (run.seconds, times[run.seed])
        for run in ours
        if run.epoch is not None and run.seconds is not None and run.seed in times
    ]


def _seeds(cells: Sequence[CellToTarget]) -> list[SameSeed]:
    groups: dict[str, SameSeed] = {}
    for each in cells:
        rest = {name: value for name, value in each.cell.axes.items() if name != "stack"}
        for run in each.runs:
            axes = rest | {"seed": run.seed}
            groups.setdefault(repr(axes), SameSeed(axes, {})).epochs[each.cell.stack] = run.epoch
    return [group for group in groups.values() if len(group.epochs) > 1]


def _metrics(records: Sequence[Record]) -> list[str]:
    """The names of all metrics of the validation split that runs have."""
    epochs = list(chain.from_iterable(record.epochs for record in records))
    names = ("loss", "accuracy", *(name for epoch in epochs for name in epoch.metrics))
    return [name for name in dict.fromkeys(names) if any(epoch.metric(name) is not None for epoch in epochs)]
