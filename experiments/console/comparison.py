"""Two campaigns side by side on screen."""

from __future__ import annotations

from typing import Final

from experiments.analysis.compare import Change, changes
from experiments.campaign.campaign import Campaign
from experiments.report.formats import Format, interval, number
from experiments.report.verdict_words import SCREEN, verdict
from experiments.util.screen import Screen

COLUMNS: Final = ("cell", "pairs", "train_s, B over A", "95 % interval", "B is", "")
DIFFERENT_TIMES: Final = (
    "A and B ran at different times: whatever else changed on the machines is part of these differences."
)
UNLIKE: Final = {"work": "different work", "side by side": "side by side in one of them only"}
RATIO: Final = Format(3)


def show_comparison(screen: Screen, first: Campaign, second: Campaign) -> None:
    """Shows the times of every cell in the second campaign over those in the first.

    Raises:
        UserError: they have no run in common, or a record is damaged.
    """
    found = changes(first, second)
    names = [f"{campaign.file.matrix}, {campaign.file.name}" for campaign in (first, second)]
    screen.line(f"A: {names[0]}. B: {names[1]}.")
    screen.line(f"Not the same: {', '.join(differences(first, second)) or 'nothing'}.")
    screen.table("Train_s of B over A, seed by seed", COLUMNS, [_row(change) for change in found])
    screen.line(DIFFERENT_TIMES)


def differences(first: Campaign, second: Campaign) -> list[str]:
    """What differs between the campaigns, in words."""
    found = first.file.identity.differences(second.file.identity)
    revisions = [campaign.file.environment.git.revision for campaign in (first, second)]
    if revisions[0] != revisions[1]:
        found.append(f"the checkout ({' and '.join((each or 'unknown')[:12] for each in revisions)})")
    return found


def _row(change: Change) -> list[str]:
    ratio = change.ratio
    return [
        ", ".join(f"{name} {value}" for name, value in change.axes.items()),
        str(ratio.n),
        number(ratio.ratio, RATIO),
        "" if ratio.low is None else interval(ratio.low, ratio.high, RATIO),
        change_verdict(change),
        "equal weights" if change.same_weights else "other weights",
    ]


def change_verdict(change: Change) -> str:
    """The verdict on a cell's times, with what its runs don't share."""
    verdict_text = verdict(change.ratio, SCREEN)
    return f"{verdict_text}; {UNLIKE[change.unlike]}" if change.unlike else verdict_text
