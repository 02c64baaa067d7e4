"""The noise floor: how far apart runs are that differ in nothing (an A/A test).

A matrix that repeats runs of its first stack (the axis `repetition`) measures by how much two runs of one
work under one set of conditions differ on the day. A smaller difference between stacks may be chance or
whatever else moves the machine, however narrow its interval is.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import REPETITION, Cell, Figures
from experiments.analysis.pairing import outside_together, paired_by_seed, time_ratio
from experiments.analysis.statistics import Difference, Ratio, ratios_together


@dataclass(frozen=True)
class Again:
    """A cell of the first stack that was run again; intervals of a kind hold for all such cells."""

    cell: Cell  # the repetition
    ratio: Ratio  # its train_s over that of the first time, by pairs of the same seed
    outside: Difference | None  # its seconds outside train_s less those of the first time, by the same pairs

    @property
    def floor(self) -> float | None:
        """The farther end of the ratio's interval from 1, as a fraction; None without an interval."""
        return farther_end(self.ratio)

    @property
    def outside_s(self) -> float | None:
        """The farther end of the interval of `outside` from 0; None without an interval."""
        found = self.outside
        if found is None or found.low is None or found.high is None:
            return None
        return max(found.high, -found.low)


@dataclass(frozen=True)
class Noise:
    """What the repetitions of the first stack show."""

    again: list[Again]

    @property
    def floor(self) -> float | None:
        """The largest one, a fraction of train_s below which nothing is claimed; None = not measured."""
        return max((each.floor for each in self.again if each.floor is not None), default=None)

    @property
    def outside_s(self) -> float | None:
        """The same for the time outside train_s, in seconds."""
        return max((each.outside_s for each in self.again if each.outside_s is not None), default=None)


def farther_end(ratio: Ratio) -> float | None:
    """The farther end of a ratio's interval from 1, as a fraction; None without an interval."""
    if ratio.low is None or ratio.high is None:
        return None
    return max(ratio.high, 1 / ratio.low) - 1


def repetitions(figures: Figures) -> list[tuple[Cell, Cell]]:
    """Every repeated cell of the first stack, with its first time."""
    found = []
    for cell in figures.cells:
        first = sibling(figures.cells, cell, **{REPETITION: 1})
        if cell.stack == figures.campaign.baseline and first is not None and first is not cell:
            found.append((cell, first))
    return found


def noise(figures: Figures) -> Noise:
    """Every repeated cell of the first stack against its first time."""
    found = []
    for cell, first in repetitions(figures):
        pairs = paired_by_seed(cell.records, first.records)
        ratio = time_ratio(pairs)
        if ratio is not None:
            found.append((cell, ratio, pairs))
    looks = figures.campaign.looks
    ratios = ratios_together([ratio for _, ratio, _ in found], looks)
    outside = outside_together([pairs for *_, pairs in found], looks)
    return Noise(
        [Again(cell, ratio, more) for (cell, *_), ratio, more in zip(found, ratios, outside, strict=True)]
    )
