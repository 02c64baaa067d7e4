"""Which records every figure comes from, with links to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from experiments.analysis.figures import Cell, Figures
from experiments.campaign.attempt import OUTPUTS
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
            [
                stack_text(cell.stack, cell.settings),
                Value(cell.workers),
                Value(cell.epochs),
                Value(
                    None,
                    links=tuple(
                        (str(record.specification.work.seed), figures.places[record.run_id])
                        for record in cell.records
                    ),
                ),
                *([Value(None, links=_traces(cell, figures.places))] if traced else []),
            ]
            for cell in cells
        ],
    )


def _traces(cell: Cell, places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The traces of a cell's runs: their names, and where they lie beside the records."""
    return tuple(
        (f"{record.specification.work.seed}/{rank}", str(outputs / trace.file(rank)))
        for record in cell.records
        if (trace := record.specification.conditions.trace) is not None
        for outputs in [PurePosixPath(places[record.run_id]).parent / OUTPUTS]
        for rank in range(record.specification.work.world_size)
    )
