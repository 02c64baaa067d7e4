"""How good the trained models are: every metric, over the seeds, and how sure a single evaluation is."""

from __future__ import annotations

from typing import Final

from experiments.analysis.figures import Cell, Figures
from experiments.analysis.statistics import Estimate
from experiments.report.formats import Format, Value, plain_interval
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns

TITLE: Final = "How good the models are"
SHARE: Final = Format(4)


def quality_table(figures: Figures) -> Table:
    """A row for each metric of each cell, that by which people judge the models first."""
    names = ("stack", "workers", "epochs", "metric", "n", "mean", "sd", "95 % interval", "one evaluation, ±")
    return Table(
        title=TITLE,
        before=(
            "Metrics of the validation split after the last epoch, and of the test split if there is one "
            "(it is looked at once, at the end): the mean over n seeds, their standard "
            "deviation, and the 95 % interval of the mean (Student's t), which say what another seed would "
            "change. One evaluation: half the 95 % interval of a share of so many samples (normal "
            "approximation of the binomial), which says what another validation split would change; seeds "
            "that share a split don't make it smaller."
        ),
        columns=columns(*names, words=("stack", "metric")),
        rows=[_row(cell, name, found) for cell in figures.cells for name, found in cell.metrics.items()],
    )


def _row(cell: Cell, name: str, found: Estimate) -> list[Value | str]:
    return [
        stack_text(cell.stack, cell.settings),
        Value(cell.workers),
        Value(cell.epochs),
        name.replace("_", " "),
        run_count(found.n),
        Value(found.mean, SHARE),
        Value(found.sd, SHARE),
        plain_interval(found.low, found.high, SHARE),
        Value(cell.one_evaluation(name), SHARE),
    ]
