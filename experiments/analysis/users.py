"""Several users at once on a cluster: who waits, who is slowed down and how fairly, against runs alone.

All times are those of the stack's launch, from submission (or start) to end. Ansible's work around it is left
out, because it differs between a run made alone and one that begins with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean
from typing import Any

from experiments.analysis.figures import Cell, Figures
from experiments.campaign.concurrent import same_occasion
from experiments.records.record import Launch, Record


@dataclass(frozen=True)
class Alone:
    """The means of a cell's runs that were made alone, in seconds."""

    took_s: float
    waited_s: float
    runs: int


@dataclass(frozen=True)
class User:
    """One of the users who began at once."""

    record: Record
    alone: Alone

    @property
    def took_s(self) -> float:
        """Seconds from submission to the stack's report that it has ended."""
        launch = launch_of(self.record)
        return launch.ended - launch.started

    @property
    def waited_s(self) -> float:
        """Seconds from submission until the slowest rank's process existed."""
        return waited_s(self.record)

    @property
    def training(self) -> tuple[float, float]:
        """When its ranks were up, and when training had ended, in Unix seconds."""
        launch = launch_of(self.record)
        phases = self.record.phases or {}
        return launch.started + self.waited_s, launch.ended - phases["shutdown"]

    @property
    def slowdown(self) -> float:
        """How many times as long it took as alone."""
        return self.took_s / self.alone.took_s

    @property
    def nodes(self) -> list[str]:
        """Where its ranks ran."""
        return sorted({rank.node or rank.host for rank in self.record.ranks})

    @property
    def seed(self) -> int:
        """Tells the users of one occasion apart."""
        return self.record.specification.work.seed


@dataclass(frozen=True)
class Occasion:
    """Users who began at the same moment."""

    cell: Cell  # that of the same runs made alone
    users: list[User]

    @property
    def fairness(self) -> float:
        """Jain's index of the slowdowns: 1 if all are slowed down alike, 1/n if one bears it all."""
        slowdowns = [user.slowdown for user in self.users]
        return sum(slowdowns) ** 2 / (len(slowdowns) * sum(each**2 for each in slowdowns))

    @property
    def makespan_s(self) -> float:
        """Seconds from the first submission until the last user's end."""
        launches = [launch_of(user.record) for user in self.users]
        return max(each.ended for each in launches) - min(each.started for each in launches)

    @property
    def in_turn_s(self) -> float:
        """Seconds that as many runs take one after another, each as long as alone."""
        return sum(user.alone.took_s for user in self.users)

    @property
    def overlap_s(self) -> float:
        """Seconds during which two of them trained at the same time; the longest overlap of any pair."""
        spans = [user.training for user in self.users]
        pairs = [min(one[1], other[1]) - max(one[0], other[0]) for one, other in combinations(spans, 2)]
        return max(0.0, *pairs)

    @property
    def shortest_s(self) -> float:
        """The duration of the shortest training among them, in seconds."""
        return min(end - up for up, end in (user.training for user in self.users))

    @property
    def in_turn(self) -> list[User] | None:
        """The users in the order they trained, if each began after the one before had ended; else None."""
        order = sorted(self.users, key=lambda user: user.training)
        return order if all(a.training[1] <= b.training[0] for a, b in pairwise(order)) else None

    @property
    def apart(self) -> bool:
        """Whether no node had ranks of two of them."""
        return not any(set(a.nodes) & set(b.nodes) for a, b in combinations(self.users, 2))


def launch_of(record: Record) -> Launch:
    """How a run that is ok was launched."""
    assert record.launch is not None
    return record.launch


def waited_s(record: Record) -> float:
    """Seconds from submission until the slowest rank's process existed: queue plus launch."""
    phases = record.phases or {}
    return phases["queue"] + phases["launch"]


def occasions(figures: Figures) -> tuple[list[Occasion], int]:
    """Every complete occasion, and how many were left out because their cell has no run made alone."""
    cells = {repr(cell.axes): cell for cell in figures.cells}
    found, unmatched = [], 0
    for axes, records in _whole(figures):
        if not all(record.timed for record in records):
            continue
        cell = cells.get(repr(axes))
        alone = [record for record in cell.timed if record.together is None] if cell else []
        if cell is None or not alone:
            unmatched += 1
            continue
        launches = [launch_of(record) for record in alone]
        means = Alone(
            took_s=fmean(each.ended - each.started for each in launches),
            waited_s=fmean(waited_s(record) for record in alone),
            runs=len(alone),
        )
        found.append(Occasion(cell, [User(record, means) for record in records]))
    return found, unmatched


def _whole(figures: Figures) -> Iterator[tuple[dict[str, Any], list[Record]]]:
    counting = {record.run_id: record for record in figures.counting}
    for run in figures.campaign.measured:
        if run.together[:1] != [run.run_id]:
            continue
        records = [counting.get(run_id) for run_id in run.together]
        if same_occasion(records):
            axes = {name: value for name, value in run.axes.items() if name != "seed"}
            yield axes, [record for record in records if record is not None]
