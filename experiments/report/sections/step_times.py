"""How long steps took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.step_times import RankSteps
from experiments.report.formats import TENTHS, Value
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import listed

TITLE: Final = "How long steps took"


def step_times_table(found: Sequence[RankSteps]) -> Table:
    """A row for each rank of a cell."""
    return Table(
        title=TITLE,
        before=(
            "Milliseconds from the end of a step to the end of the next one, as a rank saw them, with what "
            "lies between steps and without checkpoints and evaluations. The median, with its 95 % interval, "
            "and the percentiles are means over the runs of a cell; the longest step is that of all its runs."
        ),
        columns=columns(
            "stack",
            "workers",
            "epochs",
            "rank",
            "on",
            "runs",
            "median",
            "95th percentile",
            "99th percentile",
            "longest",
            words=("stack", "on"),
        ),
        rows=[
            [
                stack_text(each.cell.stack, each.cell.settings),
                Value(each.cell.workers),
                Value(each.cell.epochs),
                Value(each.rank),
                listed(each.nodes),
                run_count(each.runs),
                Value(each.median.mean, TENTHS, low=each.median.low, high=each.median.high),
                Value(each.p95, TENTHS),
                Value(each.p99, TENTHS),
                Value(each.longest, TENTHS),
            ]
            for each in found
        ],
    )
