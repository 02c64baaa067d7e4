"""Two campaigns side by side on screen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from experiments.analysis.census import LaunchDifferences, between_stacks, launch_differences
from experiments.analysis.compare import Change, Unpaired, comparison
from experiments.analysis.figures import figures_of
from experiments.campaign.campaign import Campaign
from experiments.report.arithmetic_words import ALIKE, apart_text, on_other_processors, together
from experiments.report.formats import Format, interval, number
from experiments.report.verdict_words import SCREEN, verdict
from experiments.util.screen import Screen
from experiments.util.words import counted, listed

COLUMNS: Final = ("cell", "pairs", "train_s, B over A", "95 % interval", "B is", "")
LAUNCHES: Final = ("what", "in A", "in B")
UNNOTED: Final = (
    "Not compared, because not every rank on {stack} noted it, as earlier versions did not: {groups}."
)
DIFFERENT_TIMES: Final = (
    "A and B ran at different times: whatever else changed on the machines is part of these differences."
)
WEIGHTS: Final = {True: "equal weights", False: "other weights"}
UNPROVEN: Final = {
    "no digest": "weights not proven equal",
    "other arithmetic": "weights can't be equal: see below",
}
WITHOUT_PAIRS: Final = {
    "cell of A": "A has no such runs",
    "cell of B": "B has no such runs",
    "runs of A": "no run of A counts",
    "runs of B": "no run of B counts",
    "runs of both": "no run of A or B counts",
    "times": "its runs are disturbed, or made by a stand-in, so their times don't count",
    "seeds": "A and B have no seed in common",
}
UNLIKE: Final = {"work": "different work", "side by side": "side by side in one of them only"}
RATIO: Final = Format(3)


@dataclass(frozen=True)
class Limits:
    """What a change may do, for a test of one's own that compares campaigns."""

    slower_percent: float | None = None  # how much longer B may take than A; None = any
    equal_weights: bool = False  # whether B's weights must be A's

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        return self.slower_percent is not None or self.equal_weights

    def broken_by(self, change: Change) -> list[str]:
        """What a cell does that it may not, in words.

        A cell is slower if the whole interval of its ratio is above the limit; one with a single pair has no
        interval, and is judged by the ratio.
        """
        ratio, found = change.ratio, []
        least = ratio.ratio if ratio.low is None else ratio.low
        if self.slower_percent is not None and least > 1 + self.slower_percent / 100:
            found.append(
                f"{number(ratio.ratio, RATIO)} times as long (at least {number(least, RATIO)}), more than "
                f"{self.slower_percent:g} % longer"
            )
        if self.equal_weights and change.why_unproven == "no digest":
            found.append("equal weights are not proven, because a run has no digest of its weights")
        elif self.equal_weights and change.why_unproven is not None:
            hint = f" ({ALIKE})" if on_other_processors(change.apart) else ""
            found.append(f"equal weights can't be expected: {apart_text(change.apart)}{hint}")
        elif self.equal_weights and not change.same_weights:
            found.append("other weights")
        return found


def compare(screen: Screen, first: Campaign, second: Campaign, limits: Limits) -> tuple[int, dict[str, Any]]:
    """Shows the times of every cell in the second campaign over those in the first.

    Returns the exit code, 1 if a limit is broken or a cell can't be held to it, and all of it as JSON has it.

    Raises:
        UserError: they have no run in common, or a record is damaged.
    """
    found = comparison(first, second)
    names = [f"{campaign.file.matrix}, {campaign.file.name}" for campaign in (first, second)]
    screen.line(f"A: {names[0]}. B: {names[1]}.")
    differ = differences(first, second)
    screen.line(f"Not the same: {', '.join(differ) or 'nothing'}.")
    screen.table("Train_s of B over A, seed by seed", COLUMNS, [_row(change) for change in found.changes])
    unlike = together(each.apart for each in found.changes if each.why_unproven == "other arithmetic")
    if unlike:
        screen.line(f"A and B did not compute alike, so last bits can't be compared: {apart_text(unlike)}.")
    screen.line(DIFFERENT_TIMES)
    launches = _launches(first, second)
    for stack, launch in launches.items():
        _show(screen, stack, launch)
    apart = {side: between_stacks(figures_of(each)) for side, each in (("a", first), ("b", second))}
    for side, between in apart.items():
        if between.compared:
            screen.line(
                f"Within {side.upper()}, launches on {listed(between.sides)} differ in "
                f"{counted(len(between.differing), 'thing')} that ranks noted (the same: {between.same}). "
                "The report and --json have their values."
            )
            for group in dict.fromkeys(item.group for item in between.differing):
                screen.line(f"  {group}: {', '.join(_names(between, group))}")
    broken = [(change, limits.broken_by(change)) for change in found.changes]
    for change, faults in broken:
        for fault in faults:
            screen.line(f"Beyond the limit: {_cell(change)}: {fault}.", "bold red")
    for each in found.unpaired:
        begins = "Beyond the limit, as it can't be judged" if limits.any else "Not compared"
        reason = WITHOUT_PAIRS[each.lacks]
        screen.line(f"{begins}: {_cell(each)}: {reason}.", "bold red" if limits.any else "yellow")
    content = {
        "a": {"matrix": first.file.matrix, "campaign": first.file.name},
        "b": {"matrix": second.file.matrix, "campaign": second.file.name},
        "not_the_same": differ,
        "cells": [_as_json(change, faults) for change, faults in broken],
        "launches": [
            {
                "stack": stack,
                "group": item.group,
                "name": item.name,
                "in_a": item.values["A"],
                "in_b": item.values["B"],
            }
            for stack, launch in launches.items()
            for item in launch.differing
        ],
        "launches_between_stacks": [
            {"campaign": side, "stack": stack, "group": item.group, "name": item.name, "values": values}
            for side, between in apart.items()
            for item in between.differing
            for stack, values in item.values.items()
        ],
        "launches_not_compared": [
            {"stack": stack, "group": group} for stack, launch in launches.items() for group in launch.unnoted
        ],
        "without_pairs": [
            {"axes": each.axes, "reason": WITHOUT_PAIRS[each.lacks]} for each in found.unpaired
        ],
    }
    failed = any(faults for _, faults in broken) or (limits.any and bool(found.unpaired))
    return int(failed), content


def _names(between: LaunchDifferences, group: str) -> list[str]:
    """Of what differs in a group."""
    return [item.name for item in between.differing if item.group == group]


def _launches(first: Campaign, second: Campaign) -> dict[str, LaunchDifferences]:
    """What the launches of each stack differ in between the campaigns, where both have noted it."""
    counting = {side: figures_of(campaign).counting for side, campaign in (("A", first), ("B", second))}
    stacks = dict.fromkeys(record.specification.stack for records in counting.values() for record in records)
    found = {
        stack: launch_differences(
            {
                side: [record for record in records if record.specification.stack == stack]
                for side, records in counting.items()
            }
        )
        for stack in stacks
    }
    return {stack: each for stack, each in found.items() if each.compared}


def _show(screen: Screen, stack: str, found: LaunchDifferences) -> None:
    """Shows what a stack's launches differ in, or that nothing does."""
    same = f"the same: {counted(found.same, 'thing')} that its ranks noted"
    if found.differing:
        rows = [
            (f"{item.group}: {item.name}", *(" or ".join(item.values[side]) for side in found.sides))
            for item in found.differing
        ]
        screen.table(f"What launches on {stack} differ in ({same})", LAUNCHES, rows)
    else:
        screen.line(f"Launches on {stack} differ in nothing ({same}).")
    if found.unnoted:
        screen.line(UNNOTED.format(stack=stack, groups=listed(found.unnoted)))


def _as_json(change: Change, faults: list[str]) -> dict[str, Any]:
    return {
        "axes": change.axes,
        "train_s_ratio": {name: value for name, value in asdict(change.ratio).items() if name != "floor"},
        "verdict": change_verdict(change),
        "equal_weights": change.same_weights,
        "beyond_limits": faults,
    }


def _cell(each: Change | Unpaired) -> str:
    return ", ".join(f"{name} {value}" for name, value in each.axes.items())


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
        _cell(change),
        str(ratio.n),
        number(ratio.ratio, RATIO),
        "" if ratio.low is None else interval(ratio.low, ratio.high, RATIO),
        change_verdict(change),
        UNPROVEN[change.why_unproven] if change.why_unproven else WEIGHTS[change.same_weights is True],
    ]


def change_verdict(change: Change) -> str:
    """The verdict on a cell's times, with what its runs don't share."""
    verdict_text = verdict(change.ratio, SCREEN)
    return f"{verdict_text}; {UNLIKE[change.unlike]}" if change.unlike else verdict_text
