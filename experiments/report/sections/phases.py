"""Where the time of every cell goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.figures import Cell, phase_names
from experiments.report.formats import RATIO, TENTHS, Value
from experiments.report.names import phase_name, stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns

TITLE: Final = "Where the time goes"
AROUND: Final = "total_s less train_s"


def phases_table(cells: Sequence[Cell]) -> Table:
    """Phase by phase."""
    phases = phase_names(cells)
    names = ("workers", "epochs", "runs", *(phase_name(name) for name in phases), "total_s", AROUND)
    return Table(
        title=TITLE,
        before=(
            "Seconds on the slowest rank, means over the runs of a cell; they add up to total_s. Other is "
            "everything without a name of its own, including Ansible's work before and after the stack's. "
            "total_s less train_s, with its 95 % interval, is what a run takes around training."
        ),
        columns=columns("stack", *names, words=("stack",)),
        rows=[
            [
                stack_text(cell.stack, cell.settings),
                Value(cell.workers),
                Value(cell.epochs),
                run_count(len(cell.timed)),
                *(Value(cell.phases.get(name, 0.0), RATIO) for name in phases),
                Value(cell.phases_total_s, RATIO),
                Value(around.mean, TENTHS, low=around.low, high=around.high) if around else Value(None),
            ]
            for cell, around in ((cell, cell.around_training_s) for cell in cells)
            if cell.phases is not None
        ],
    )
