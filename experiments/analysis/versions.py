"""With which versions of libraries the ranks of each stack ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from experiments.analysis.figures import Figures
from experiments.cluster.environment import LOCKED
from experiments.records.record import Rank, Record

UNREAD: Final = "trouble"  # what a census's group has in its place if it can't be read


@dataclass(frozen=True)
class Versions:
    """The versions of every library that ranks noted; several if ranks of one stack differ."""

    stacks: list[str]
    libraries: dict[str, dict[str, list[str]]]  # by library, by stack
    named: list[str]  # libraries that training itself uses, and Python
    of_all: bool  # whether every rank noted all its packages, as those of earlier versions did not

    def differing(self, library: str) -> bool:
        """Whether stacks, or ranks of one, have different versions, or some have it and some don't."""
        found = self.libraries[library]
        return len(found) < len(self.stacks) or len({each for had in found.values() for each in had}) > 1


def versions(figures: Figures, libraries: str | None = None) -> Versions:
    """The versions by library and stack, from the ranks of all runs that count.

    Args:
        figures: of a campaign.
        libraries: only of runs with this value of the condition; None = of all, and those of other than the
            locked ones are named with it, as `stack newest`.
    """
    found: dict[str, dict[str, list[str]]] = {}
    named: dict[str, None] = {}
    of_all = True
    stacks: dict[str, None] = {}
    for record in figures.counting:
        if libraries not in (None, record.specification.conditions.libraries):
            continue
        stack = _named(record, libraries)
        stacks[stack] = None
        for rank in record.ranks:
            packages = _packages(rank)
            of_all = of_all and bool(packages)
            named |= dict.fromkeys(rank.versions)
            # torch's own word, with its build, before that of the package.
            for library, version in (packages | rank.versions).items():
                had = found.setdefault(library, {}).setdefault(stack, [])
                had += [version] if version not in had else []
    return Versions(list(stacks), dict(sorted(found.items())), list(named), of_all)


def _named(record: Record, libraries: str | None) -> str:
    stack, had = record.specification.stack, record.specification.conditions.libraries
    return stack if libraries == had or had == LOCKED else f"{stack} {had}"


def _packages(rank: Rank) -> dict[str, str]:
    packages = (rank.census or {}).get("packages", {})
    return {} if UNREAD in packages else packages
