"""What the stacks' launches differ in: the whole list of what a launch can change."""

from __future__ import annotations

from typing import Final

from experiments.analysis.census import LaunchDifferences
from experiments.report.tables import Table, columns
from experiments.util.words import counted, listed

TITLE: Final = "What the launches differ in"
CHANGING: Final = (
    "On every stack these change from run to run, or from rank to rank, and are not compared: {names}."
)


def launch_table(found: LaunchDifferences) -> Table:
    """Everything that the ranks of the stacks noted otherwise; no rows if there was nothing to compare."""
    return Table(
        title=TITLE,
        before="Just before it trains, every rank notes what it was given and what it runs on. "
        f"{counted(found.same, 'thing')} of it are the same on all stacks; these are not. A launch can make "
        "training slower by nothing else; what a stack does while its ranks train is not in this list.",
        columns=columns("what", "name", *found.sides, words=("what", "name", *found.sides)),
        rows=[
            [each.group, each.name, *(" or ".join(each.values[side]) for side in found.sides)]
            for each in (found.differing if found.compared else [])
        ],
        after=[CHANGING.format(names=listed(found.changing))] if found.changing else [],
    )
