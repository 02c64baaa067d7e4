"""Tables 5.1 to 5.9 row by row, as the dissertation prints them: every figure, with ours beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.analysis.dissertation import (
    BASE,
    BEYOND,
    OVER,
    PERCENT,
    SHORT,
    Dissertation,
    PrintedColumn,
    PrintedRow,
    PrintedTable,
    Quantity,
)
from experiments.analysis.dissertation_figures import PublishedFigure


@dataclass(frozen=True)
class TableFigure:
    """A figure of a table."""

    quantity: Quantity
    printed: float | None  # None: a dash
    here: PublishedFigure | None  # None: there are no such runs, or it is the base itself
    is_base: bool  # of the stack that the others are held against


@dataclass(frozen=True)
class TableRow:
    """A row of a table, with our runs of one setting and one length; without any if there are none."""

    printed: PrintedRow
    stack: str  # here, which may be the dissertation's release of its own
    own_stack: str  # the dissertation's
    settings: dict[str, Any]  # the values of the matrix's other axes
    figures: list[TableFigure]  # one for each column
    epochs: tuple[int, ...]  # here, of those of its figures that there are
    runs: list[int]  # that each of these comes from, or pairs of them
    published_runs: list[int]  # of each figure


@dataclass(frozen=True)
class FilledTable:
    """One of its tables, with our figures."""

    printed: PrintedTable
    rows: list[TableRow]


@dataclass(frozen=True)
class _Asked:
    """What a place in a table has: a figure of which stack, workers and epochs."""

    quantity: Quantity
    stack: str
    workers: int
    epochs: tuple[int, ...]

    def find(self, figures: Sequence[PublishedFigure], reference: Dissertation) -> PublishedFigure | None:
        """Ours among these; the share beyond the base's time is the ratio, less one."""
        quantity = OVER if self.quantity == PERCENT else self.quantity
        key = quantity, self.stack, self.workers, self.epochs
        found = next(
            (
                each
                for each in figures
                if (each.quantity, reference.own_stack(each.stack), each.workers, each.published_epochs)
                == key
            ),
            None,
        )
        return _percent(found) if self.quantity == PERCENT and found is not None else found


def filled_tables(found: Sequence[PublishedFigure], reference: Dissertation) -> list[FilledTable]:
    """Every table of the dissertation, whole; none if nothing here stands beside any of its figures.

    A row stands once for each setting and each length of our runs that are compared with it.

    Args:
        found: our figures and those beside them, of `published_figures`.
        reference: the dissertation.
    """
    ours = [each for each in found if each.here is not None]
    if not ours:
        return []
    return [
        FilledTable(table, [row for each in table.rows for row in _rows(table, each, ours, reference)])
        for table in reference.tables
    ]


def _rows(
    table: PrintedTable, row: PrintedRow, ours: Sequence[PublishedFigure], reference: Dissertation
) -> Iterator[TableRow]:
    asked = [_asked(table, row, column) for column in table.columns]
    here = [each for each in ours if any(one.find([each], reference) for one in asked)]
    for figures in _apart(here) or [[]]:
        cells = [_figure(one, figures, reference) for one in asked]
        shown = [cell.here for cell in cells if cell.here is not None]
        yield TableRow(
            printed=row,
            stack=shown[0].stack if shown else asked[0].stack,
            own_stack=asked[0].stack,
            settings=shown[0].settings if shown else {},
            figures=cells,
            epochs=tuple(sorted({length for each in shown for length in each.epochs})),
            runs=[each.runs for each in shown],
            published_runs=[
                run.of_runs
                for one in asked
                for length in one.epochs
                if (run := reference.run(one.stack, one.workers, length)) is not None
            ],
        )


def _asked(table: PrintedTable, row: PrintedRow, column: PrintedColumn) -> _Asked:
    return _Asked(
        column.quantity,
        row.stack or table.stack,
        row.workers or column.workers,
        tuple(row.epochs or column.epochs or table.epochs),
    )


def _apart(figures: Sequence[PublishedFigure]) -> list[list[PublishedFigure]]:
    """These figures of one row by stack, setting, and our length where several stand beside its short one."""
    groups: dict[str, list[PublishedFigure]] = {}
    for each in figures:
        groups.setdefault(repr((each.stack, each.settings)), []).append(each)
    apart = []
    for group in groups.values():
        lengths = dict.fromkeys(each.epochs[0] for each in group if each.published_epochs[0] == SHORT)
        apart += [
            [each for each in group if each.published_epochs[0] != SHORT or each.epochs[0] == length]
            for length in lengths or [None]
        ]
    return apart


def _figure(asked: _Asked, figures: Sequence[PublishedFigure], reference: Dissertation) -> TableFigure:
    return TableFigure(
        asked.quantity,
        reference.figure(asked.quantity, asked.stack, asked.workers, asked.epochs),
        asked.find(figures, reference),
        is_base=asked.stack == BASE and asked.quantity in (OVER, BEYOND, PERCENT),
    )


def _percent(ratio: PublishedFigure) -> PublishedFigure:
    """How much longer than the base, in %."""
    here, low, high = (
        None if each is None else (each - 1) * 100 for each in (ratio.here, ratio.low, ratio.high)
    )
    return replace(ratio, quantity=PERCENT, here=here, low=low, high=high)
