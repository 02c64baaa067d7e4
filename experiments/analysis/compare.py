"""Two campaigns side by side: before and after a driver, a version, a setting."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from experiments.analysis.figures import Cell, figures_of
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Ratio, ratios_together
from experiments.analysis.verdicts import SCREEN, verdict
from experiments.campaign.campaign import Campaign
from experiments.records.record import Record
from experiments.util.errors import UserError

DIFFERENT_TIMES: Final = (
    "A and B ran at different times: what else changed on the machines between them is in these differences."
)


@dataclass(frozen=True)
class Change:
    """A cell's train_s in the second campaign over that in the first, seed by seed."""

    axes: dict[str, Any]
    ratio: Ratio
    weights: str  # whether the same seeds ended with the same weights
    unlike: str | None  # what besides the campaigns' differences its runs don't share; None: nothing

    @property
    def verdict(self) -> str:
        """What may be said, and no more."""
        said = verdict(self.ratio, self.ratio.p, SCREEN)
        return f"{said}; {self.unlike}" if self.unlike else said


def changes(first: Campaign, second: Campaign) -> list[Change]:
    """Every cell that both campaigns have runs of with a seed in common.

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
            f"{first.folder} and {second.folder} have no run in common: compare campaigns of the same cells "
            "and seeds."
        )
    together = ratios_together([ratio for _, ratio, _ in found])
    return [
        Change(cell.axes, ratio, _weights(pairs), _unlike(pairs))
        for (cell, _, pairs), ratio in zip(found, together, strict=True)
    ]


def differences(first: Campaign, second: Campaign) -> list[str]:
    """What the campaigns are not both made of, in words."""
    found = first.file.identity.differences(second.file.identity)
    revisions = [campaign.file.environment.git.revision for campaign in (first, second)]
    if revisions[0] != revisions[1]:
        found.append(f"the checkout ({' and '.join((each or 'unknown')[:12] for each in revisions)})")
    return found


def rows(found: list[Change]) -> list[list[str]]:
    """The changes as text, for a table on screen."""
    return [
        [
            ", ".join(f"{name} {value}" for name, value in change.axes.items()),
            str(change.ratio.n),
            f"{change.ratio.ratio:.3f}",
            "" if change.ratio.low is None else f"{change.ratio.low:.3f} to {change.ratio.high:.3f}",
            change.verdict,
            change.weights,
        ]
        for change in found
    ]


def _key(cell: Cell) -> str:
    return json.dumps(cell.axes, sort_keys=True)


def _unlike(pairs: list[tuple[Record, Record]]) -> str | None:
    if any(late.work_digest != early.work_digest for late, early in pairs):
        return "of other work"
    if any((late.together is None) != (early.together is None) for late, early in pairs):
        return "side by side in one of them only"
    return None


def _weights(pairs: list[tuple[Record, Record]]) -> str:
    same = all(late.weights_digest == early.weights_digest for late, early in pairs)
    return "equal weights" if same else "other weights"
