"""Whether times drifted while a campaign ran, and what happened to its nodes in between.

A machine may get slower or faster by the hour: it warms up, its disks fill, others begin to use it. Pairs of
the same seed cancel most of that; means and seconds don't. So every run's train_s is set against the mean of
its cell, and a line through all of them tells how much equal work changes in an hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from scipy import stats

from experiments.analysis.figures import Figures
from experiments.analysis.statistics import EXACT, LEVEL
from experiments.campaign.attempt import Attempt
from experiments.campaign.campaign import Campaign
from experiments.records.record import Record

LEAST: Final = 10  # runs from which a trend is said
SHORTEST_H: Final = 0.1  # between the first and the last: an hour is no measure of less


@dataclass(frozen=True)
class TimedRun:
    """A run of a cell that has several, and when it was made."""

    stack: str
    hours: float  # from the campaign's beginning to the run's
    ratio: float  # its train_s over the mean of its cell


@dataclass(frozen=True)
class Boot:
    """Nodes that booted between two of their runs, as the second one shows."""

    hours: float  # when that run began
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Trend:
    """How much train_s of equal work changes in an hour, as a fraction; the interval is Student's."""

    slope: float
    low: float  # ends of the 95 % interval
    high: float
    p: float  # of no change, two-sided
    n: int

    @property
    def certain(self) -> bool:
        """Whether the interval excludes that nothing changes."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Drift:
    """The runs of a campaign in the order of time; adopted ones, which were made before, are left out."""

    runs: list[TimedRun] = field(default_factory=list)  # none unless they began at different times
    boots: list[Boot] = field(default_factory=list)
    resumed: list[float] = field(default_factory=list)  # hours, when the first run of a later command began
    boots_known: bool = True  # whether every record has the boots of its nodes
    commands_known: bool = True  # whether every run's folder says which command made it
    trend: Trend | None = None  # None: too few runs or hours, or no spread that a clock could tell from none

    @property
    def hours(self) -> float:
        """From the first run's beginning to the last one's."""
        return self.runs[-1].hours - self.runs[0].hours if self.runs else 0.0


def drift(campaign: Campaign, figures: Figures) -> Drift:
    """The times of the campaign's own runs, by when they began."""
    own = [[each for each in cell.timed if _is_own(each, campaign)] for cell in figures.cells]
    cells = [records for records in own if len(records) > 1]
    records = sorted((each for cell in cells for each in cell), key=lambda each: each.started)
    if not records or records[0].started == records[-1].started:
        return Drift()
    means = {
        each.run_id: float(np.mean([_train_s(other) for other in cell])) for cell in cells for each in cell
    }
    hours = {each.run_id: _hours(each, campaign) for each in records}
    runs = [
        TimedRun(each.specification.stack, hours[each.run_id], _train_s(each) / means[each.run_id])
        for each in records
    ]
    commands = [
        (each, Attempt((campaign.folder / figures.places[each.run_id]).parent).controller) for each in records
    ]
    known = [(each, command) for each, command in commands if command is not None]
    return Drift(
        runs=runs,
        boots=list(_boots(records, campaign)),
        resumed=[hours[each.run_id] for (_, before), (each, command) in pairwise(known) if command != before],
        boots_known=all(each.starts for each in records),
        commands_known=len(known) == len(commands),
        trend=trend([[(hours[each.run_id], math.log(_train_s(each))) for each in cell] for cell in cells]),
    )


def trend(cells: Sequence[Sequence[tuple[float, float]]]) -> Trend | None:
    """The slope that all cells have in common, each with a level of its own.

    Args:
        cells: hours and logarithm of train_s of each run, by cell.
    """
    n, hours = sum(len(cell) for cell in cells), [moment for cell in cells for moment, _ in cell]
    if n < LEAST or max(hours) - min(hours) < SHORTEST_H:
        return None
    # Within its cell, a run is compared with runs of equal work only, whenever the matrix had these made.
    apart = np.concatenate([np.asarray(cell) - np.mean(cell, axis=0) for cell in cells])
    if not np.ptp(apart[:, 0]):
        return None
    line = stats.linregress(apart[:, 0], apart[:, 1])
    freedom = n - len(cells) - 1
    error = float(line.stderr) * math.sqrt((n - 2) / freedom)  # each cell's level was estimated, too
    if error < EXACT:
        return None
    half = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * error
    slope = float(line.slope)
    return Trend(
        slope=math.expm1(slope),
        low=math.expm1(slope - half),
        high=math.expm1(slope + half),
        p=float(2 * stats.t.sf(abs(slope / error), freedom)),
        n=n,
    )


def _boots(records: Sequence[Record], campaign: Campaign) -> Iterable[Boot]:
    """When runs, in the order of time, found nodes in another boot than the last run there."""
    last: dict[str, str] = {}
    for record in records:
        now = {each.node or each.host: each.boot for each in record.starts or []}
        if booted := tuple(sorted(node for node in now if last.get(node, now[node]) != now[node])):
            yield Boot(_hours(record, campaign), booted)
        last |= now


def _is_own(record: Record, campaign: Campaign) -> bool:
    return record.campaign == campaign.file.name and record.train_s is not None


def _train_s(record: Record) -> float:
    assert record.train_s is not None
    return record.train_s


def _hours(record: Record, campaign: Campaign) -> float:
    return (record.started - campaign.file.started).total_seconds() / 3600
