"""The effect of a setting: cells that differ in one axis only, compared with that axis's first value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import REPETITION, USUAL_AXES, Cell, Figures
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Ratio, ratios_together
from experiments.analysis.verdicts import Outcome, outcome


@dataclass(frozen=True)
class SettingComparison:
    """A cell against the one with the axis's first value and all else equal; the intervals hold for all."""

    axis: str
    cell: Cell
    first: Any  # value of the axis
    ratio: Ratio

    @property
    def value(self) -> Any:
        """The cell's own value of the axis."""
        return self.cell.axes[self.axis]

    @property
    def outcome(self) -> Outcome:
        """What the ratio shows."""
        return outcome(self.ratio)


def setting_comparisons(figures: Figures, floor: float | None = None) -> list[SettingComparison]:
    """Every comparison of settings that the runs allow, in the matrix's order; none if it has ladders.

    `floor` is the noise floor, as a fraction of train_s.
    """
    found = []
    first = figures.cells[0].axes if figures.cells and not figures.campaign.ladders else {}
    for axis in (name for name in first if name not in (*USUAL_AXES, REPETITION)):
        for cell in (each for each in figures.cells if REPETITION not in each.settings):
            base = sibling(figures.cells, cell, **{axis: first[axis]})
            if base is None or base is cell:
                continue
            ratio = time_ratio(paired_by_seed(cell.records, base.records))
            if ratio is not None:
                found.append((axis, cell, first[axis], ratio))
    together = ratios_together([ratio for *_, ratio in found], figures.campaign.looks)
    return [
        SettingComparison(axis, cell, value, replace(ratio, floor=floor))
        for (axis, cell, value, _), ratio in zip(found, together, strict=True)
    ]
