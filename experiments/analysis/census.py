"""What launches differ in, by the censuses of their ranks: the whole list of what a launch can change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from experiments.analysis.figures import Figures
from experiments.records.record import Record

NOT_SET: Final = "not set"
CHANGES: Final = "changes"  # from rank to rank of a node, or from run to run
#: What names only this run, in paths and values: its id, and those of containers, allocations and the like.
OWN: Final = re.compile(
    r"\b[\w.]+-w\d+-e\d+-s\d+-[0-9a-f]{8}\b|\b[0-9a-f]{64}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
Entries = dict[tuple[str, str], str]
"""What one rank noted: the values by group and name."""


@dataclass(frozen=True)
class Differing:
    """One thing that is not the same on all sides."""

    group: str
    name: str
    values: dict[str, list[str]]  # by side; several if its nodes differ


@dataclass(frozen=True)
class LaunchDifferences:
    """How the launches of several sides (stacks, or campaigns) differ."""

    sides: list[str]  # those with a census
    differing: list[Differing]
    changing: list[str]  # "group: name" of what changes on all sides, and can't be compared
    same: int  # how many things are the same on all sides

    @property
    def compared(self) -> bool:
        """Whether there was something to compare."""
        return len(self.sides) > 1


def between_stacks(figures: Figures) -> LaunchDifferences:
    """Compares the launches of a campaign's stacks; those that a stand-in made are not the stack's."""
    own = [record for record in figures.counting if record.standin is None]
    stacks = dict.fromkeys(record.specification.stack for record in own)
    return launch_differences(
        {stack: [record for record in own if record.specification.stack == stack] for stack in stacks}
    )


def launch_differences(sides: Mapping[str, Iterable[Record]]) -> LaunchDifferences:
    """Compares what the ranks of each side noted, node by node, on the nodes that all sides used.

    What changes from run to run on all sides (a port, an identifier) is not compared, but named.
    """
    noted = {side: found for side, records in sides.items() if (found := _noted(records))}
    nodes = sorted(set.intersection(*map(set, noted.values()))) if noted else []
    differing, changing, same = [], [], 0
    for key in _keys(found[node] for found in noted.values() for node in nodes):
        values = {side: [_value(found[node], key) for node in nodes] for side, found in noted.items()}
        if all(CHANGES in by_node for by_node in values.values()):
            changing.append(": ".join(key))
        elif all(by_node == values[next(iter(noted))] for by_node in values.values()):
            same += 1
        else:
            differing.append(Differing(*key, {side: sorted({*found}) for side, found in values.items()}))
    return LaunchDifferences(list(noted), differing, changing, same)


def _noted(records: Iterable[Record]) -> dict[str, list[Entries]]:
    """What the ranks of some runs noted, by node."""
    found: dict[str, list[Entries]] = {}
    for record in records:
        for rank in record.ranks:
            if rank.census is not None:
                found.setdefault(rank.node or rank.host, []).append(_entries(rank.census))
    return found


def _entries(census: Mapping[str, Mapping[str, str]]) -> Entries:
    return {
        (group, OWN.sub("<its own>", name)): OWN.sub("<its own>", value)
        for group, values in census.items()
        for name, value in values.items()
    }


def _keys(of_nodes: Iterable[list[Entries]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(key for of_node in of_nodes for entries in of_node for key in entries))


def _value(of_node: list[Entries], key: tuple[str, str]) -> str:
    found = {entries.get(key, NOT_SET) for entries in of_node}
    return found.pop() if len(found) == 1 else CHANGES
