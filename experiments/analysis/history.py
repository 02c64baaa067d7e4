"""All campaigns of a matrix, cell by cell in the order of time, with change points.

Campaigns are in one line only if they did the same work on the same machines, with the stack's own software
or with a stand-in. Others have lines of their own, which say what sets them apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from experiments.analysis.change_points import Shift, change_points
from experiments.analysis.compare import axes_key
from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.noise import noise
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Estimate, Ratio, estimate
from experiments.campaign.campaign import Campaign
from experiments.campaign.identity import Identity
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record

Kind = Literal["timed", "stand-in", "disturbed"]
"""Whose times they are: the stack's; a stand-in's; those of traced runs. Only the first are shown."""


@dataclass(frozen=True)
class Entry:
    """One campaign in a line."""

    campaign: Campaign
    records: list[Record]  # its own that count, and adopted ones whose campaign is not there
    adopted: int  # more that count here, but were made in other campaigns of the history
    train_s: Estimate | None
    over_baseline: Ratio | None  # train_s over that of the campaign's first stack, by pairs of the same seed
    change: Shift | None = None  # a change point just before it
    before: Campaign | None = None  # the last one before the change point


@dataclass(frozen=True)
class Line:
    """The campaigns of one cell that may be set side by side."""

    axes: dict[str, Any]  # without the seed
    kind: Kind
    simulated: bool
    identity: Identity  # of its first campaign
    work: dict[str, Any]  # of its runs, without the seed
    entries: list[Entry]
    tested: bool = False  # whether change points could be found: there is a gap, and runs have a spread
    floor: float = 0.0  # the largest noise floor that its campaigns measured
    other_machines: bool = False  # than those of the cell's first line
    other_work: list[str] = field(default_factory=list)  # settings of the work that differ from it


def history(found: Sequence[tuple[Campaign, Figures]]) -> list[Line]:
    """The lines of all cells, in the order in which the campaigns have them.

    Args:
        found: the campaigns of one matrix in the order of time, with their figures.
    """
    names = {campaign.file.name for campaign, _ in found}
    lines: dict[tuple[str, ...], Line] = {}
    floors = {campaign.file.name: noise(figures).floor or 0.0 for campaign, figures in found}
    for campaign, figures in found:
        runs = {axes_key(run.axes): run for run in reversed(_possible(campaign))}
        for cell in figures.cells:
            if (run := runs.get(axes_key(cell.axes))) is None:
                continue
            for kind, entry in _entries(campaign, figures, cell, names):
                line = _line(campaign, cell, run, kind)
                key = (axes_key(cell.axes), kind, _machines(line.identity), json.dumps(line.work))
                lines.setdefault(key, line).entries.append(entry)
    cells: dict[str, list[Line]] = {}
    for line in lines.values():
        cells.setdefault(axes_key(line.axes), []).append(line)
    apart = [_apart(line, of_cell[0]) for of_cell in cells.values() for line in of_cell]
    tests = sum(max(0, len(_timed(line)) - 1) for line in apart)
    return [_with_changes(line, tests, floors) for line in apart]


def _possible(campaign: Campaign) -> list[PlannedRun]:
    """Its planned runs that its cluster can make, but for those of users who begin at once."""
    return [run for run in campaign.file.measured if run.cannot_run is None and not run.together]


def _line(campaign: Campaign, cell: Cell, run: PlannedRun, kind: Kind) -> Line:
    """A line that begins with this campaign, as yet without entries."""
    work = run.specification.work.model_dump(mode="json")
    del work["seed"]
    return Line(cell.axes, kind, campaign.file.simulated, campaign.file.identity, work, [])


def _machines(identity: Identity) -> str:
    """What tells the machines from others: their ids, or the names of the nodes where these are not known."""
    return json.dumps(sorted(identity.machines.values()) or sorted(identity.hardware))


def _entries(campaign: Campaign, figures: Figures, cell: Cell, names: set[str]) -> list[tuple[Kind, Entry]]:
    """The campaign's runs of a cell; those of a stand-in and disturbed ones each by themselves."""
    own = [each for each in cell.records if _counts_here(each, campaign, names)]
    kinds: dict[Kind, list[Record]] = {}
    for record in own:
        kinds.setdefault(_kind(record), []).append(record)
    if not kinds:
        kinds["stand-in" if cell.stack in campaign.file.identity.standins else "timed"] = []
    adopted = len(cell.records) - len(own)
    base = None
    if cell.stack != campaign.file.baseline:
        base = sibling(figures.cells, cell, stack=campaign.file.baseline)
    beside = [each for each in base.records if _counts_here(each, campaign, names)] if base else []
    return [
        (
            kind,
            Entry(
                campaign,
                records,
                adopted,
                estimate([each.train_s for each in records if each.train_s is not None]),
                time_ratio(paired_by_seed(records, beside)),
            ),
        )
        for kind, records in kinds.items()
    ]


def _counts_here(record: Record, campaign: Campaign, names: set[str]) -> bool:
    """Whether no other campaign of the history has it: no run counts twice."""
    return record.campaign == campaign.file.name or record.campaign not in names


def _kind(record: Record) -> Kind:
    if record.standin is not None:
        return "stand-in"
    return "timed" if record.timed else "disturbed"


def _apart(line: Line, first: Line) -> Line:
    """The line with what sets it apart from the cell's first."""
    return replace(
        line,
        other_machines=_machines(line.identity) != _machines(first.identity),
        other_work=[name for name in line.work if line.work[name] != first.work[name]],
    )


def _timed(line: Line) -> list[int]:
    """The places of its entries that have times."""
    return [at for at, entry in enumerate(line.entries) if entry.train_s is not None]


def _with_changes(line: Line, tests: int, floors: dict[str, float]) -> Line:
    timed = _timed(line)
    if len(timed) < 2:
        return line
    floor = max(floors[line.entries[at].campaign.file.name] for at in timed)
    logs = [[math.log(each.train_s) for each in line.entries[at].records if each.train_s] for at in timed]
    shifts = change_points(logs, tests, floor)
    entries = list(line.entries)
    for shift in shifts or []:
        at, before = timed[shift.at], entries[timed[shift.at - 1]].campaign
        entries[at] = replace(entries[at], change=shift, before=before)
    return replace(line, entries=entries, tested=shifts is not None, floor=floor)
