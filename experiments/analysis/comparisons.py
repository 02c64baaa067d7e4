"""The stacks against the baseline, and the time of each as a fixed part and a part per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

from experiments.analysis.dissertation import LONG, SHORT, Dissertation
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.pairing import outside_together, paired_by_seed
from experiments.analysis.statistics import (
    Difference,
    Ratio,
    Split,
    seconds_a_step,
    simultaneous,
    split,
)
from experiments.analysis.step_samples import PUBLISHED, samples_a_step, unlike_published
from experiments.analysis.verdicts import Outcome, outcome
from experiments.records.record import Record

STEPS: Final = {1: 782, 2: 391}  # per epoch of the dissertation, by workers: 25,000 reviews, 32 per worker


@dataclass(frozen=True)
class StackComparison:
    """A cell's times against the baseline's, paired by seed; intervals of a kind hold for all comparisons."""

    cell: Cell
    ratio: Ratio  # of train_s
    more_a_step: Difference  # seconds of train_s
    more_outside: Difference | None  # seconds of total_s less train_s
    published_step_s: float | None  # the dissertation's, by a line through its two lengths
    evaluated: float  # samples that a rank evaluates here, for each step
    noise_step_s: float = 0.0  # the noise floor of a step on the baseline

    @property
    def outcome(self) -> Outcome:
        """What the ratio shows."""
        return outcome(self.ratio)

    @property
    def published_ends_s(self) -> tuple[float, float] | None:
        """What the dissertation's stack would take more for a step that evaluates as much as one here.

        How much of it is evaluation is not known. One end takes all of it for that, which grows with the
        samples evaluated; the other end takes none of it for that.
        """
        if self.published_step_s is None:
            return None
        scaled = self.published_step_s * self.evaluated / PUBLISHED.evaluated
        return min(scaled, self.published_step_s), max(scaled, self.published_step_s)

    @property
    def excludes_published(self) -> bool:
        """Whether all of that is outside of the interval, by more than the noise."""
        there, here = self.published_ends_s, self.more_a_step
        if there is None or here.low is None or here.high is None:
            return False
        return there[1] < here.low - self.noise_step_s or there[0] > here.high + self.noise_step_s


@dataclass(frozen=True)
class TimeSplit:
    """A stack's train_s with this many workers, as a fixed part and a part per step."""

    stack: str
    workers: int
    settings: dict[str, Any]  # the values of the matrix's other axes
    here: Split
    more_a_step: (
        Difference | None
    )  # seconds, than on the baseline, by seed; its interval holds for all splits
    dissertation: Split | None


def comparisons(
    figures: Figures,
    dissertation: Dissertation,
    floor: float | None = None,
    outside_s: float | None = None,
) -> list[StackComparison]:
    """Every cell of a stack other than the baseline whose runs can be paired with the baseline's.

    Args:
        figures: the campaign's.
        dissertation: what it measured.
        floor: the noise floor, as a fraction of train_s.
        outside_s: the noise floor of the time outside it, in seconds.
    """
    found = []
    for cell in figures.cells:
        base = sibling(figures.cells, cell, stack=figures.campaign.baseline)
        if cell.stack == figures.campaign.baseline or base is None:
            continue
        if cell.overhead_train is not None:
            found.append((cell, cell.overhead_train, paired_by_seed(cell.records, base.records)))
    looks = figures.campaign.looks
    steps = simultaneous([[more_a_step(*pair) for pair in pairs] for *_, pairs in found], looks)
    outside = outside_together([pairs for *_, pairs in found], looks, outside_s)
    return [
        StackComparison(
            cell=cell,
            ratio=replace(ratio, floor=floor),
            more_a_step=step,
            more_outside=around,
            published_step_s=_published_step_s(figures, dissertation, cell),
            evaluated=samples_a_step(pairs[0][0].specification).evaluated,
            noise_step_s=(floor or 0.0) * fmean(step_s(below) for _, below in pairs),
        )
        for (cell, ratio, pairs), step, around in zip(found, steps, outside, strict=True)
    ]


def more_a_step(above: Record, below: Record) -> float:
    """Seconds of train_s that a step of one run takes more than one of the other's."""
    return step_s(above) - step_s(below)


def step_s(record: Record) -> float:
    """Seconds of train_s a step."""
    return (record.train_s or 0.0) / record.specification.work.steps


def _published_step_s(figures: Figures, dissertation: Dissertation, cell: Cell) -> float | None:
    """What the dissertation's stack takes more for a step than its baseline.

    None if it did not measure both, as of two releases of one stack, or if a step of these runs is nothing
    like one of its: of another kind of workload, of another batch, or simulated.
    """
    if figures.campaign.simulated or unlike_published(cell.records[0].specification) is not None:
        return None
    stacks = (cell.stack, figures.campaign.baseline)
    if len({dissertation.own_stack(each) for each in stacks}) == 1:
        return None
    own, base = (published_split(dissertation, stack, cell.workers) for stack in stacks)
    return own.step_s - base.step_s if own is not None and base is not None else None


def time_splits(figures: Figures, dissertation: Dissertation, floor: float | None = None) -> list[TimeSplit]:
    """The split of every stack's time, where there are runs of two lengths.

    `floor` is the noise floor, as a fraction of train_s: of the baseline's part per step.
    """
    groups: dict[str, list[Cell]] = {}  # cells that differ only in epochs
    for cell in figures.cells:
        groups.setdefault(_group(cell.stack, cell), []).append(cell)
    points = {key: _points(cells) for key, cells in groups.items()}
    slopes = {key: seconds_a_step(blocks) for key, blocks in points.items()}
    found, more = [], []
    for key, cells in groups.items():
        here, first = split(points[key]), cells[0]
        if here is not None:
            base = _group(figures.campaign.baseline, first)
            ours, theirs = slopes[key], {} if base == key else slopes.get(base, {})
            simulated = figures.campaign.simulated
            there = None if simulated else published_split(dissertation, first.stack, first.workers)
            found.append(TimeSplit(first.stack, first.workers, first.settings, here, None, there))
            more.append([(ours[seed] - theirs[seed], theirs[seed]) for seed in ours if seed in theirs])
    steps = [[step for step, _ in each] for each in more if each]
    together = iter(simultaneous(steps, figures.campaign.looks))
    return [
        replace(each, more_a_step=replace(next(together), floor=_floor_s(floor, [base for _, base in pairs])))
        if pairs
        else each
        for each, pairs in zip(found, more, strict=True)
    ]


def _group(stack: str, cell: Cell) -> str:
    return repr((stack, cell.workers, cell.settings))


def _points(cells: Sequence[Cell]) -> dict[int, list[tuple[float, float]]]:
    """Number of steps and train_s of each run, by seed."""
    found: dict[int, list[tuple[float, float]]] = {}
    for record in (record for cell in cells for record in cell.records):
        work = record.specification.work
        if record.train_s is not None:
            found.setdefault(work.seed, []).append((work.steps, record.train_s))
    return found


def _floor_s(floor: float | None, base_s: Sequence[float]) -> float | None:
    return None if floor is None else floor * fmean(base_s)


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
