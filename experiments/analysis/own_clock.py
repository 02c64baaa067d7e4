"""What a step takes on a script's own clock, stack against stack.

Of a script, train_s has the start of its process and its imports. A script that is judged by a metric in
milliseconds (its name ends in `_ms`) measures in its own process, around its steps alone: the difference of
two such metrics is what a stack takes from a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import REPETITION, Cell, Figures
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import Difference, simultaneous
from experiments.records.record import Record

SUFFIX: Final = "_ms"


@dataclass(frozen=True)
class OwnClock:
    """A stack's cell beside the baseline's, in milliseconds of the script's own; intervals hold for all."""

    cell: Cell
    baseline: Cell
    metric: str
    own_ms: float  # means over the pairs
    baseline_ms: float
    more_ms: Difference  # by pairs of the same seed; its floor is that of the repeated cells


def own_clock(figures: Figures) -> list[OwnClock]:
    """Every cell that has a sibling of the baseline; none unless a script is judged by milliseconds."""
    if not figures.campaign.has_own_loop:
        return []
    found, again = [], []
    for cell in figures.cells:
        repeated = REPETITION in cell.settings
        first = {REPETITION: 1} if repeated else {"stack": figures.campaign.baseline}
        base = sibling(figures.cells, cell, **first)
        pairs = _pairs(cell, base) if base is not None and base is not cell else []
        if base is None or not pairs:
            continue
        if not repeated:
            found.append((cell, base, pairs))
        elif cell.stack == figures.campaign.baseline:
            again.append(_more(pairs))
    floor = _floor(simultaneous(again, figures.campaign.looks))
    together = simultaneous([_more(pairs) for *_, pairs in found], figures.campaign.looks)
    return [
        OwnClock(
            cell,
            base,
            cell.metric,
            own_ms=fmean(own for own, _ in pairs),
            baseline_ms=fmean(other for _, other in pairs),
            more_ms=replace(more, floor=floor),
        )
        for (cell, base, pairs), more in zip(found, together, strict=True)
    ]


def trains_nothing(figures: Figures) -> bool:
    """Whether the runs are no training: simulated ones, or of a script that measures its steps itself."""
    return figures.campaign.simulated or any(own_ms(record) is not None for record in figures.counting)


def _pairs(cell: Cell, base: Cell) -> list[tuple[float, float]]:
    both = [(own_ms(own), own_ms(other)) for own, other in paired_by_seed(cell.records, base.records)]
    return [(own, other) for own, other in both if own is not None and other is not None]


def own_ms(record: Record) -> float | None:
    """Milliseconds a step by a script's own clock, the mean over its epochs; None if it has none."""
    data = record.specification.work.data
    name = data.metric
    if not (data.has_own_loop and name.endswith(SUFFIX)):
        return None
    values = [value for epoch in record.epochs if (value := epoch.metric(name)) is not None]
    return fmean(values) if values else None


def _more(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [own - other for own, other in pairs]


def _floor(again: Sequence[Difference]) -> float | None:
    """The farthest end from 0 of what runs that differ in nothing are apart; None if that is not known."""
    ends = [abs(end) for each in again for end in (each.low, each.high) if end is not None]
    return max(ends, default=None)
