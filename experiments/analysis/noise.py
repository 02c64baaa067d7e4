"""The noise floor: how far apart runs are that differ in nothing (an A/A test).

A matrix that repeats runs of its first stack (the axis `repetition`) measures by how much two runs of one
work under one set of conditions differ on the day. A smaller difference between stacks may be chance or
whatever else moves the machine, however narrow its interval is.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import REPETITION, Cell, Figures
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Ratio, ratios_together


@dataclass(frozen=True)
class Again:
    """A cell of the first stack that was run again; the intervals hold for all such cells."""

    cell: Cell  # the repetition
    ratio: Ratio  # its train_s over that of the first time, by pairs of the same seed

    @property
    def floor(self) -> float | None:
        """The farther end of the interval from 1, as a fraction; None without an interval."""
        if self.ratio.low is None or self.ratio.high is None:
            return None
        return max(self.ratio.high, 1 / self.ratio.low) - 1


@dataclass(frozen=True)
class Noise:
    """What the repetitions of the first stack show."""

    again: list[Again]

    @property
    def floor(self) -> float | None:
        """The largest one, a fraction of train_s below which nothing is claimed; None = not measured."""
        return max((each.floor for each in self.again if each.floor is not None), default=None)


def noise(figures: Figures) -> Noise:
    """Every repeated cell of the first stack against its first time."""
    found = []
    for cell in figures.cells:
        first = sibling(figures.cells, cell, **{REPETITION: 1})
        if cell.stack != figures.campaign.baseline or first is None or first is cell:
            continue
        ratio = time_ratio(paired_by_seed(cell.records, first.records))
        if ratio is not None:
            found.append((cell, ratio))
    together = ratios_together([ratio for _, ratio in found], figures.campaign.looks)
    return Noise([Again(cell, ratio) for (cell, _), ratio in zip(found, together, strict=True)])
