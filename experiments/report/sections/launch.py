"""What the stacks' launches differ in: the whole list of what a launch can change."""

from __future__ import annotations

from typing import Final

from experiments.analysis.census import LaunchDifferences
from experiments.report.tables import Table, columns
from experiments.util.words import counted, listed

TITLE: Final = "What the launches differ in"
CHANGING: Final = "On every stack these change from run to run, and are not compared: {names}."


def launch_table(found: LaunchDifferences) -> Table:
    """Everything that the ranks of the stacks noted otherwise; no rows if there was nothing to compare."""
    rows = [
        [each.group, each.name, *(" or ".join(each.values[side]) for side in found.sides)]
        for each in found.differing
    ] or [["nothing", "", *("the same" for _ in found.sides)]]
    return Table(
        title=TITLE,
        before="Before ranks meet, each notes what it was given and what it runs on. Compared are those at "
        "the same place of equally large runs under equal conditions. The same on all stacks: "
        f"{counted(found.same, 'thing')}. Not the same are those below: what a launch does to the time of "
        "training is among them, as far as it is noted; what a stack does while its ranks train is not.",
        columns=columns("what", "name", *found.sides, words=("what", "name", *found.sides)),
        rows=rows if found.compared else [],
        after=[CHANGING.format(names=listed(found.changing))] if found.changing else [],
    )
