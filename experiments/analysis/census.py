"""What launches differ in, by the censuses of their ranks: the whole list of what a launch can change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from experiments.analysis.figures import Figures
from experiments.records.record import Record

NOT_SET: Final = "not set"
CHANGES: Final = "changes"  # from run to run
#: What names only this run, in paths and values: its id, and those of containers, allocations and the like;
#: the pair of categories that SELinux tells containers apart by.
OWN: Final = re.compile(
    r"\b[a-z][a-z0-9]*-(simulated-)?w\d+-e\d+-s\d+-[0-9a-f]{8}\b|\b[0-9a-f]{64}\b"
    r"|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|(?<=:s0:)c\d+,c\d+\b"
)
#: Modules of Python's packages, which earlier versions noted among the shared libraries of some stacks.
OF_PYTHON: Final = re.compile(r"/(site-packages|dist-packages|lib-dynload)/")
Entries = dict[tuple[str, str], str]
"""What one rank noted: the values by group and name."""

Place = tuple[str, ...]
"""What ranks must have in common to be compared: size and conditions of the run, node, place on the node."""


@dataclass(frozen=True)
class Differing:
    """One thing that is not the same on all sides."""

    group: str
    name: str
    values: dict[str, list[str]]  # by side; several if its places differ


@dataclass(frozen=True)
class LaunchDifferences:
    """How the launches of several sides (stacks, or campaigns) differ."""

    sides: list[str]  # those with a census
    places: int  # at which ranks of all sides were compared
    differing: list[Differing]
    changing: list[str]  # "group: name" of what changes on all sides, and can't be compared
    unnoted: list[str]  # groups that some rank's census lacks, as those of earlier versions do: not compared
    same: int  # how many things are the same on all sides

    @property
    def compared(self) -> bool:
        """Whether there was something to compare."""
        return len(self.sides) > 1 and self.places > 0


def between_stacks(figures: Figures) -> LaunchDifferences:
    """Compares the launches of a campaign's stacks; those that a stand-in made are not the stack's."""
    own = [record for record in figures.counting if record.standin is None]
    stacks = dict.fromkeys(record.specification.stack for record in own)
    return launch_differences(
        {stack: [record for record in own if record.specification.stack == stack] for stack in stacks}
    )


def launch_differences(sides: Mapping[str, Iterable[Record]]) -> LaunchDifferences:
    """Compares what the ranks of each side noted, place by place, where all sides had ranks.

    What changes from run to run on all sides (a port, an identifier) is not compared, but named; so are
    groups that some rank's census lacks.
    """
    listed = {side: [*records] for side, records in sides.items()}
    noted = {side: found for side, records in listed.items() if (found := _noted(records))}
    common, unnoted = _groups(record for records in listed.values() for record in records)
    places = sorted(set.intersection(*map(set, noted.values()))) if noted else []
    differing, changing, same = [], [], 0
    for key in _keys(found[place] for found in noted.values() for place in places):
        if key[0] not in common:
            continue
        values = {side: [_value(found[place], key) for place in places] for side, found in noted.items()}
        if all(CHANGES in by_place for by_place in values.values()):
            changing.append(": ".join(key))
        elif all(by_place == values[next(iter(noted))] for by_place in values.values()):
            same += 1
        else:
            differing.append(Differing(*key, {side: sorted({*found}) for side, found in values.items()}))
    return LaunchDifferences(list(noted), len(places), differing, changing, unnoted, same)


def _groups(records: Iterable[Record]) -> tuple[set[str], list[str]]:
    """The groups that all censuses have, and those that only some have."""
    censuses = [rank.census for record in records for rank in record.ranks if rank.census is not None]
    common = set.intersection(*map(set, censuses)) if censuses else set()
    return common, sorted({group for census in censuses for group in census} - common)


def _noted(records: Iterable[Record]) -> dict[Place, list[Entries]]:
    """What the ranks of some runs noted, by place."""
    found: dict[Place, list[Entries]] = {}
    for record in records:
        work = record.specification.work
        run = (str(work.workers), str(work.slots_per_worker), record.conditions_digest)
        for rank in record.ranks:
            if rank.census is not None:
                place = (*run, rank.node or rank.host, str(rank.local_rank))
                found.setdefault(place, []).append(_entries(rank.census))
    return found


def _entries(census: Mapping[str, Mapping[str, str]]) -> Entries:
    return {
        (group, OWN.sub("<its own>", name)): OWN.sub("<its own>", value)
        for group, values in census.items()
        for name, value in values.items()
        if group != "shared libraries" or not OF_PYTHON.search(value)
    }


def _keys(at_places: Iterable[list[Entries]]) -> list[tuple[str, str]]:
    return list(dict.fromkeys(key for at_place in at_places for entries in at_place for key in entries))


def _value(at_place: list[Entries], key: tuple[str, str]) -> str:
    found = {entries.get(key, NOT_SET) for entries in at_place}
    return found.pop() if len(found) == 1 else CHANGES
