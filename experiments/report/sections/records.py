"""Which records every figure comes from, with links to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from experiments.analysis.figures import Cell, Figures
from experiments.campaign.attempt import OUTPUTS
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.report.formats import Value
from experiments.report.names import stack_text
from experiments.report.tables import Table, columns

TITLE: Final = "Records"
RECORDS: Final = "records, by seed"
TRACES: Final = "traces, by seed and rank"


def records_table(figures: Figures) -> Table:
    """A row for each cell: every run that its figures come from, by its seed."""
    cells = [cell for cell in figures.cells if cell.records]
    traced = [TRACES] if any(cell.disturbed for cell in cells) else []
    return Table(
        title=TITLE,
        before=(
            "The runs that each row of the other tables comes from, by their seeds. A record names its run's "
            "outputs with their digests; `check` compares them."
        ),
        columns=columns(*("stack", "workers", "epochs", RECORDS, *traced), words=("stack", RECORDS, TRACES)),
        rows=[
            *_cell_rows(cells, figures, traced=bool(traced)),
            *_users_rows(figures, traced=bool(traced)),
            *_bare_rows(figures, traced=bool(traced)),
        ],
    )


def run_count(count: int) -> Value:
    """How many runs, or pairs of runs, a figure comes from; it leads to their records."""
    return Value(count, section=TITLE if count else "")


def _cell_rows(cells: Sequence[Cell], figures: Figures, *, traced: bool) -> Iterator[list[Value | str]]:
    for cell in cells:
        yield [
            stack_text(cell.stack, cell.settings),
            Value(cell.workers),
            Value(cell.epochs),
            _records(cell.records, figures),
            *([Value(None, links=_traces(cell, figures.places))] if traced else []),
        ]


def _records(records: Sequence[Record], figures: Figures) -> Value:
    links = tuple((str(record.specification.work.seed), figures.places[record.run_id]) for record in records)
    return Value(None, links=links)


def _users_rows(figures: Figures, *, traced: bool) -> Iterator[list[Value | str]]:
    """The runs of users who began at once, which are in no cell."""
    runs = [run for run in figures.campaign.measured if run.together]
    yield from _rows_beside_cells(runs, figures.counting, figures, ", users at once", traced=traced)


def _bare_rows(figures: Figures, *, traced: bool) -> Iterator[list[Value | str]]:
    """The runs of an empty program, which are in no cell."""
    runs = [run for run in figures.campaign.wanted if run.specification.bare]
    yield from _rows_beside_cells(runs, figures.bare, figures, "", traced=traced)


def _rows_beside_cells(
    runs: Sequence[PlannedRun], records: Sequence[Record], figures: Figures, words: str, *, traced: bool
) -> Iterator[list[Value | str]]:
    """A row for each group of runs that differ only in their seed, with `words` after its name."""
    counting = {record.run_id: record for record in records}
    groups: dict[tuple[tuple[str, str], ...], list[PlannedRun]] = {}
    for run in runs:
        if run.run_id in counting:
            groups.setdefault(run.cell, []).append(run)
    for alike in groups.values():
        specification = alike[0].specification
        yield [
            f"{stack_text(specification.stack, alike[0].axes)}{words}",
            Value(specification.work.workers),
            Value(specification.work.epochs),
            _records([counting[run.run_id] for run in alike], figures),
            *([Value(None)] if traced else []),
        ]


def _traces(cell: Cell, places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The traces of a cell's runs: their names, and where they lie beside the records."""
    return tuple(
        (f"{record.specification.work.seed}/{rank}", str(outputs / trace.file(rank)))
        for record in cell.records
        if (trace := record.specification.conditions.trace) is not None
        for outputs in [PurePosixPath(places[record.run_id]).parent / OUTPUTS]
        for rank in range(record.specification.work.world_size)
    )
