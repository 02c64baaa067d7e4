"""The effect of a setting: cells that differ in one axis only, compared with that axis's first value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments.analysis.comparisons import more_a_step, sibling
from experiments.analysis.figures import REPETITION, USUAL_AXES, Cell, Figures
from experiments.analysis.pairing import outside_together, paired_by_seed, time_ratio
from experiments.analysis.statistics import Difference, Ratio, ratios_together, simultaneous
from experiments.analysis.verdicts import Outcome, outcome
from experiments.records.record import Record


@dataclass(frozen=True)
class SettingComparison:
    """A cell against the one with the axis's first value and all else equal.

    Intervals of a kind hold for all comparisons.
    """

    axis: str
    cell: Cell
    first: Any  # value of the axis
    ratio: Ratio  # of train_s
    more_a_step: Difference | None  # seconds of train_s; None: a step is of other samples with this value
    more_outside: Difference | None  # seconds of total_s less train_s

    @property
    def value(self) -> Any:
        """The cell's own value of the axis."""
        return self.cell.axes[self.axis]

    @property
    def outcome(self) -> Outcome:
        """What the ratio shows."""
        return outcome(self.ratio)


def setting_comparisons(
    figures: Figures, floor: float | None = None, outside_s: float | None = None
) -> list[SettingComparison]:
    """Every comparison of settings that the runs allow, in the matrix's order; none if it has ladders.

    Args:
        figures: the campaign's.
        floor: the noise floor, as a fraction of train_s.
        outside_s: the noise floor of the time outside it, in seconds.
    """
    found = []
    first = figures.cells[0].axes if figures.cells and not figures.campaign.ladders else {}
    for axis in (name for name in first if name not in (*USUAL_AXES, REPETITION)):
        for cell in (each for each in figures.cells if REPETITION not in each.settings):
            base = sibling(figures.cells, cell, **{axis: first[axis]})
            if base is None or base is cell:
                continue
            pairs = paired_by_seed(cell.records, base.records)
            ratio = time_ratio(pairs)
            if ratio is not None:
                found.append((axis, cell, first[axis], ratio, pairs))
    looks = figures.campaign.looks
    together = ratios_together([ratio for *_, ratio, _ in found], looks)
    outside = outside_together([pairs for *_, pairs in found], looks, outside_s)
    steps = [[more_a_step(*pair) for pair in pairs if _has_same_steps(*pair)] for *_, pairs in found]
    of_steps = iter(simultaneous([each for each in steps if each], looks))
    return [
        SettingComparison(
            axis, cell, value, replace(ratio, floor=floor), next(of_steps) if step else None, around
        )
        for (axis, cell, value, *_), ratio, step, around in zip(found, together, steps, outside, strict=True)
    ]


def _has_same_steps(above: Record, below: Record) -> bool:
    """Whether a step of the one has as many samples as one of the other, and both have as many steps."""
    first, second = above.specification.work, below.specification.work
    return (first.steps, first.global_batch) == (second.steps, second.global_batch)
