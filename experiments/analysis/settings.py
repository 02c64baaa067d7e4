"""The effect of a setting: cells that differ in one axis only, compared with that axis's first value.

Where a matrix has too few cells to tell the effects of its settings apart, as one of a few recipes has, each
cell that differs in several is compared with the first one, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """A cell against the one with the first value of these axes and all else equal.

    Intervals of a kind hold for all comparisons.
    """

    axes: tuple[str, ...]
    cell: Cell
    base: Cell
    ratio: Ratio  # of train_s
    more_a_step: Difference | None  # seconds of train_s; None: a step is of other samples with this value
    more_outside: Difference | None  # seconds of total_s less train_s

    @property
    def values(self) -> list[Any]:
        """The cell's own values of the axes."""
        return [self.cell.axes[axis] for axis in self.axes]

    @property
    def first(self) -> list[Any]:
        """The first values of the axes."""
        return [self.base.axes[axis] for axis in self.axes]

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
    cells = [each for each in figures.cells if REPETITION not in each.settings]
    if figures.campaign.ladders:
        cells = []
    for axes, cell, base in (*_in_one(cells), *_in_several(cells)):
        pairs = paired_by_seed(cell.records, base.records)
        ratio = time_ratio(pairs)
        if ratio is not None:
            found.append((axes, cell, base, ratio, pairs))
    looks = figures.campaign.looks
    together = ratios_together([ratio for *_, ratio, _ in found], looks)
    outside = outside_together([pairs for *_, pairs in found], looks, outside_s)
    steps = [[more_a_step(*pair) for pair in pairs if _has_same_steps(*pair)] for *_, pairs in found]
    of_steps = iter(simultaneous([each for each in steps if each], looks))
    return [
        SettingComparison(
            axes, cell, base, replace(ratio, floor=floor), next(of_steps) if step else None, around
        )
        for (axes, cell, base, *_), ratio, step, around in zip(found, together, steps, outside, strict=True)
    ]


def _in_one(cells: Sequence[Cell]) -> Iterator[tuple[tuple[str, ...], Cell, Cell]]:
    """An axis, a cell, and the one that has the axis's first value and is like it otherwise."""
    first = _first(cells)
    for axis in first:
        for cell in cells:
            base = sibling(cells, cell, **{axis: first[axis]})
            if base is not None and base is not cell:
                yield (axis,), cell, base


def _in_several(cells: Sequence[Cell]) -> Iterator[tuple[tuple[str, ...], Cell, Cell]]:
    """Axes, a cell that differs in all of them from the one with first values, and that one.

    Only where cells with as many workers and epochs on a stack are too few to tell their axes' effects apart.
    """
    first = _first(cells)
    groups: dict[tuple[str, int, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.stack, cell.workers, cell.epochs), []).append(cell)
    for group in groups.values():
        base = sibling(group, group[0], **first)
        varying = [axis for axis in first if len({repr(cell.axes[axis]) for cell in group}) > 1]
        if base is None or len(group) > len(varying):
            continue
        for cell in group:
            changed = tuple(axis for axis in varying if cell.axes[axis] != first[axis])
            if len(changed) > 1:
                yield changed, cell, base


def _first(cells: Sequence[Cell]) -> dict[str, Any]:
    """The first values of the axes that not every matrix has."""
    axes = cells[0].axes if cells else {}
    return {name: value for name, value in axes.items() if name not in (*USUAL_AXES, REPETITION)}


def _has_same_steps(above: Record, below: Record) -> bool:
    """Whether a step of the one has as many samples as one of the other, and both have as many steps."""
    first, second = above.specification.work, below.specification.work
    return (first.steps, first.global_batch) == (second.steps, second.global_batch)
