"""How the report's first sentences name cells: by what tells them apart, and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from experiments.analysis.figures import Cell, setting_text
from experiments.analysis.statistics import Ratio
from experiments.util.words import counted

Item = TypeVar("Item")


def by_length(items: Sequence[Item], cell_of: Callable[[Item], Cell]) -> list[list[Item]]:
    """Items whose cells differ in nothing but their epochs, together."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(repr(cell_of(item).axes | {"epochs": None}), []).append(item)
    return list(groups.values())


def envelope(found: Sequence[Ratio]) -> tuple[float, float]:
    """The lowest and the highest end of several ratios' intervals, which all of them must have."""
    ends = [(each.low, each.high) for each in found]
    return min(low for low, _ in ends if low is not None), max(high for _, high in ends if high is not None)


def named(group: Sequence[Cell], among: Sequence[Cell]) -> str:
    """A stack with its number of workers, and whatever else tells these cells from the others."""
    return f"{group[0].stack} with {listed([counted(group[0].workers, 'worker'), *_apart(group, among)])}"


def scaled(group: Sequence[Cell], among: Sequence[Cell]) -> str:
    """A stack, with its number of epochs where other cells of as many workers have other ones."""
    apart = _apart(group, among)
    return f"{group[0].stack} with {listed(apart)}" if apart else group[0].stack


def listed(texts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _apart(group: Sequence[Cell], among: Sequence[Cell]) -> list[str]:
    """Epochs and settings of cells that differ in epochs alone, as far as others of as many workers differ.

    Args:
        group: the cells that are named.
        among: all that are spoken of.
    """
    first = group[0]
    others = [other.axes for other in among if other.workers == first.workers]
    differing = {name for name in first.axes if len({repr(axes[name]) for axes in others}) > 1}
    lengths = [str(cell.axes["epochs"]) for cell in group]
    epochs = counted(first.axes["epochs"], "epoch") if len(group) == 1 else f"{' or '.join(lengths)} epochs"
    setting = setting_text({name: first.axes[name] for name in first.axes if name in differing})
    return [*([epochs] if "epochs" in differing else []), *([setting] if setting else [])]
