"""Which records every figure comes from, with links to them."""

from __future__ import annotations

from typing import Final

from experiments.analysis.figures import Figures
from experiments.report.formats import Value
from experiments.report.names import stack_text
from experiments.report.tables import Table, columns

TITLE: Final = "Records"


def records_table(figures: Figures) -> Table:
    """A row for each cell: every run that its figures come from, by its seed."""
    return Table(
        title=TITLE,
        before=(
            "The runs that each row of the other tables comes from, by their seeds. A record names its run's "
            "outputs with their digests; `check` compares them."
        ),
        columns=columns(
            "stack", "workers", "epochs", "records, by seed", words=("stack", "records, by seed")
        ),
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
            ]
            for cell in figures.cells
            if cell.records
        ],
    )
