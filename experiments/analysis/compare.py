"""Two campaigns side by side: before and after a change of driver, version or setting."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from experiments.analysis.figures import Cell, figures_of
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Ratio, ratios_together
from experiments.campaign.campaign import Campaign
from experiments.records.record import Record
from experiments.util.errors import UserError

Unlike = Literal["work", "side by side"]


@dataclass(frozen=True)
class Change:
    """A cell's train_s in the second campaign over that in the first, seed by seed."""

    axes: dict[str, Any]
    ratio: Ratio
    same_weights: bool  # seed by seed
    unlike: Unlike | None  # how its runs differ beyond what the campaigns do; None: they don't


def changes(first: Campaign, second: Campaign) -> list[Change]:
    """Every cell in which both campaigns have runs with a seed in common.

    Raises:
        UserError: there is none, or a record is damaged.
    """
    after = {_key(cell): cell for cell in figures_of(second).cells}
    found = []
    for cell in figures_of(first).cells:
        other = after.get(_key(cell))
        pairs = paired_by_seed(other.records, cell.records) if other is not None else []
        ratio = time_ratio(pairs)
        if ratio is not None:
            found.append((cell, ratio, pairs))
    if not found:
        raise UserError(
            f"{first.folder} and {second.folder} have no run in common whose times count: compare "
            "campaigns of the same cells and seeds, without a trace."
        )
    together = ratios_together([ratio for _, ratio, _ in found])
    return [
        Change(cell.axes, ratio, _same_weights(pairs), _unlike(pairs))
        for (cell, _, pairs), ratio in zip(found, together, strict=True)
    ]


def _key(cell: Cell) -> str:
    return json.dumps(cell.axes, sort_keys=True)


def _same_weights(pairs: list[tuple[Record, Record]]) -> bool:
    return all(late.weights_digest == early.weights_digest for late, early in pairs)


def _unlike(pairs: list[tuple[Record, Record]]) -> Unlike | None:
    if any(late.work_digest != early.work_digest for late, early in pairs):
        return "work"
    if any((late.together is None) != (early.together is None) for late, early in pairs):
        return "side by side"
    return None
