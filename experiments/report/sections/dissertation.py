"""The dissertation's tables 5.1 to 5.9 with our figures beside its own, and where it contradicts itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from experiments.analysis.dissertation import BEYOND, PERCENT, Dissertation, Quantity
from experiments.analysis.dissertation_figures import PublishedFigure
from experiments.analysis.dissertation_tables import FilledTable, TableFigure, TableRow, filled_tables
from experiments.report.formats import RATIO, Format, Value, number, span
from experiments.report.names import setting_text, stack_text
from experiments.report.sections.records import TITLE as RECORDS
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import counted

TITLE: Final = "Beside the dissertation"
FOLLOWING: Final = "What its times give, and its tables do not print"
ITS_OWN: Final = "baseline"  # what its overhead over itself is


def dissertation_table(found: Sequence[PublishedFigure], source: Dissertation, work_here: str) -> Table:
    """Each of its tables as printed, with what stands beside its figures here; then what follows from it."""
    filled = filled_tables(found, source)
    following = [each for each in found if not each.is_printed and each.here is not None]
    return Table(
        title=TITLE,
        before=(
            f"Here: {work_here}. There: {source.work}. Work and hardware differ, so seconds and accuracies "
            "are not comparable as such; compare the ratios between stacks and between numbers of workers. "
            "Each table has the rows and columns that the dissertation prints, and beside each figure ours; "
            "one of its GPUs is a worker here. Where ours is a dash, there are no such runs here. n is the "
            "number of runs, or of pairs of runs with the same seed, that figures are means of, here and "
            "there; figures from several have 95 % intervals."
        ),
        columns=[],
        rows=[],
        parts=[*(_table(each) for each in filled), *([_following(following)] if following else [])],
        after=[
            f"In {each.where} the dissertation says that {each.says}, but {each.but}."
            for each in source.contradictions
        ],
    )


def _table(filled: FilledTable) -> Table:
    words = ["configuration"] if filled.printed.stack else ["framework"]
    heads = [f"{column.head}, {side}" for column in filled.printed.columns for side in ("there", "here")]
    epochs = ["epochs there"] if filled.printed.stack else []
    return Table(
        title=f"Table {filled.printed.number}: {filled.printed.title}",
        before="",
        columns=columns(*words, *epochs, *heads, "epochs here", "n here", "n there", words=words),
        rows=[list(_row(filled, row)) for row in filled.rows],
    )


def _row(filled: FilledTable, row: TableRow) -> Iterator[Value | str]:
    gpus = counted(row.printed.workers, "GPU") if row.printed.workers else ""
    if filled.printed.stack:
        release = "" if row.stack == row.own_stack else stack_text(row.stack, {})
        yield ", ".join(filter(None, (gpus, release, setting_text(row.settings))))
        yield _epochs(tuple(row.printed.epochs))
    else:
        yield stack_text(row.stack, row.settings) + (f" ({gpus})" if gpus else "")
    for figure in row.figures:
        yield from _sides(figure, ran=bool(row.runs))
    yield _epochs(row.epochs)
    yield _count(row.runs, RECORDS)
    yield _count(row.published_runs)


def _sides(figure: TableFigure, *, ran: bool) -> tuple[Value, Value]:
    """The figure there and here. The base's own is the same on both sides: that is what it means."""
    form = _form(figure.quantity)
    there = Value(figure.printed, form, note=ITS_OWN if figure.is_base else "")
    if figure.is_base:
        return there, there if ran else Value(None)
    if figure.here is None:
        return there, Value(None)
    return there, Value(figure.here.here, form, low=figure.here.low, high=figure.here.high)


def _following(found: Sequence[PublishedFigure]) -> Table:
    words = ("after table", "stack", "quantity")
    return Table(
        title=FOLLOWING,
        before="The same figures as in tables 5.7 to 5.9, for other numbers of workers and epochs.",
        columns=columns(
            *("after table", "stack", "workers", "quantity"),
            *("epochs there", "there", "here", "epochs here", "n here", "n there"),
            words=words,
        ),
        rows=[
            [
                ", ".join(each.tables),
                stack_text(each.stack, each.settings),
                Value(each.workers),
                each.quantity,
                _epochs(each.published_epochs),
                Value(each.published, _form(each.quantity)),
                Value(each.here, _form(each.quantity), low=each.low, high=each.high),
                _epochs(each.epochs),
                run_count(each.runs),
                Value(each.published_runs),
            ]
            for each in found
        ],
    )


def _form(quantity: Quantity) -> Format:
    digits = 4 if quantity == "accuracy" else 0 if "%" in quantity else RATIO.digits
    return Format(digits, signed=quantity in (BEYOND, PERCENT))


def _count(runs: Sequence[int], section: str = "") -> Value:
    """How many runs a row's figures come from, the fewest and the most if they differ."""
    if not runs:
        return Value(None)
    return Value(span(runs) if len(set(runs)) > 1 else runs[0], section=section)


def _epochs(lengths: tuple[int, ...]) -> Value:
    """One length, or the two that were compared; or none."""
    if not lengths:
        return Value(None)
    return Value(lengths[0], Format(unit="".join(f", {number(each)}" for each in lengths[1:])))
