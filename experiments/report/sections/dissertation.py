"""The dissertation's tables 5.1 to 5.9, rebuilt, with the places where it contradicts itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.dissertation import Dissertation
from experiments.analysis.dissertation_figures import PublishedFigure, Quantity
from experiments.report.formats import RATIO, Format, Value, number
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns

FORMATS: Final[dict[Quantity, Format]] = {"accuracy": Format(4), "efficiency, %": Format(0)}
"""By quantity; `RATIO` for the others."""
TITLE: Final = "Beside the dissertation"


def dissertation_table(found: Sequence[PublishedFigure], source: Dissertation, work_here: str) -> Table:
    """Every figure of the dissertation at the lengths that are compared, and what stands beside it here."""
    words = ("table", "stack", "quantity")
    return Table(
        title=TITLE,
        before=(
            f"Here: {work_here}. There: {source.work}. Work and hardware differ, so seconds and accuracies "
            "are not comparable as such, and have no ratio; compare the ratios between stacks and between "
            "numbers of workers. *After 5.7*: the table prints no such figure, but its times give it in the "
            "same way. Rows without a figure here have no such runs here. n is the number of runs, "
            "or of pairs of runs with the same seed, that a figure is the mean of, here and there; figures "
            "from several pairs have 95 % intervals."
        ),
        columns=columns(
            "table",
            "stack",
            "workers",
            "epochs",
            "epochs there",
            "quantity",
            "here",
            "dissertation",
            "ratio",
            "n here",
            "n there",
            words=words,
        ),
        rows=[_row(each) for each in found],
        after=[
            f"In {each.where} the dissertation says that {each.says}, but {each.but}."
            for each in source.contradictions
        ],
    )


def _row(each: PublishedFigure) -> list[Value | str]:
    form = FORMATS.get(each.quantity, RATIO)
    return [
        f"{'' if each.is_printed else 'after '}{', '.join(each.tables)}",
        stack_text(each.stack, each.settings),
        Value(each.workers),
        _epochs(each.epochs),
        _epochs(each.published_epochs),
        each.quantity,
        Value(each.here, form, low=each.low, high=each.high),
        Value(each.published, form),
        Value(each.ratio, Format(3)),
        run_count(each.runs) if each.runs else Value(None),
        Value(each.published_runs),
    ]


def _epochs(lengths: tuple[int, ...]) -> Value:
    """One length, or the two that were compared; or none."""
    if not lengths:
        return Value(None)
    return Value(lengths[0], Format(unit="".join(f", {number(each)}" for each in lengths[1:])))
