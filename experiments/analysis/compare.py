"""Two campaigns side by side: before and after a change of driver, version or setting."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from experiments.analysis.figures import Apart, Cell, arithmetic_by, figures_of
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Ratio, ratios_together
from experiments.campaign.campaign import Campaign
from experiments.records.record import Record
from experiments.util.errors import UserError

Unlike = Literal["work", "side by side"]
Unproven = Literal["no digest", "other arithmetic"]
"""A run has no digest of its weights, or the runs had other threads, libraries or processors."""

Gap = Literal["cell of A", "cell of B", "runs of A", "runs of B", "runs of both", "times", "seeds"]


@dataclass(frozen=True)
class Change:
    """A cell's train_s in the second campaign over that in the first, seed by seed."""

    axes: dict[str, Any]
    ratio: Ratio
    same_weights: bool | None  # seed by seed; None: not proven
    why_unproven: Unproven | None  # why they are not
    apart: Apart  # what A and B computed with, where it is not the same
    unlike: Unlike | None  # how its runs differ beyond what the campaigns do; None: they don't


@dataclass(frozen=True)
class Unpaired:
    """A cell of one campaign or both that can't be compared."""

    axes: dict[str, Any]
    lacks: Gap


@dataclass(frozen=True)
class Comparison:
    """What two campaigns say of each other; A is the first."""

    changes: list[Change]
    unpaired: list[Unpaired]  # without those that neither campaign's cluster could run


def comparison(first: Campaign, second: Campaign) -> Comparison:
    """Every cell in which both campaigns have runs with a seed in common, and every other one.

    Raises:
        UserError: there is no such run, or a record is damaged.
    """
    before, after = ({_key(cell): cell for cell in figures_of(each).cells} for each in (first, second))
    possible = _possible(first) | _possible(second)
    found, unpaired = [], []
    for key in dict.fromkeys([*before, *after]):
        ours, theirs = before.get(key), after.get(key)
        pairs = paired_by_seed(theirs.records, ours.records) if ours and theirs else []
        ratio = time_ratio(pairs)
        cell = ours or theirs
        assert cell is not None
        if ratio is not None:
            found.append((cell, ratio, pairs))
        elif key in possible:
            unpaired.append(Unpaired(cell.axes, _gap(ours, theirs)))
    if not found:
        raise UserError(
            f"{first.folder} and {second.folder} have no run in common whose times count: compare "
            "campaigns of the same cells and seeds, without a trace or a stand-in."
        )
    together = ratios_together([ratio for _, ratio, _ in found])
    changes = [
        Change(cell.axes, ratio, *_same_weights(pairs), _apart(pairs), _unlike(pairs))
        for (cell, _, pairs), ratio in zip(found, together, strict=True)
    ]
    return Comparison(changes, unpaired)


def _key(cell: Cell) -> str:
    return axes_key(cell.axes)


def axes_key(axes: dict[str, Any]) -> str:
    """What names a cell in several campaigns: all axes but the seed."""
    return json.dumps({name: value for name, value in axes.items() if name != "seed"}, sort_keys=True)


def _possible(campaign: Campaign) -> set[str]:
    """Keys of the cells of which its cluster could make a run."""
    return {axes_key(run.axes) for run in campaign.file.measured if run.cannot_run is None}


def _gap(first: Cell | None, second: Cell | None) -> Gap:
    """Why a cell has no pairs."""
    if first is None:
        return "cell of A"
    if second is None:
        return "cell of B"
    if not first.records and not second.records:
        return "runs of both"
    if not first.records:
        return "runs of A"
    if not second.records:
        return "runs of B"
    return "seeds" if first.timed and second.timed else "times"


def _same_weights(pairs: list[tuple[Record, Record]]) -> tuple[bool | None, Unproven | None]:
    digests = [(late.weights_digest, early.weights_digest) for late, early in pairs]
    alike = [late.arithmetic == early.arithmetic for late, early in pairs]
    differ = [None not in pair and len(set(pair)) > 1 for pair in digests]
    if any(other and like for other, like in zip(differ, alike, strict=True)):
        return False, None
    if any(differ):
        return None, "other arithmetic"
    return (None, "no digest") if any(None in pair for pair in digests) else (True, None)


def _apart(pairs: list[tuple[Record, Record]]) -> Apart:
    """What both campaigns computed with; nothing if it is the same, pair by pair."""
    unlike = [(late, early) for late, early in pairs if late.arithmetic != early.arithmetic]
    sides = [*(("A", early) for _, early in unlike), *(("B", late) for late, _ in unlike)]
    return arithmetic_by(sides)


def _unlike(pairs: list[tuple[Record, Record]]) -> Unlike | None:
    if any(late.work_digest != early.work_digest for late, early in pairs):
        return "work"
    if any((late.together is None) != (early.together is None) for late, early in pairs):
        return "side by side"
    return None
