"""The stacks against the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.comparisons import StackComparison
from experiments.analysis.figures import Figures
from experiments.report.formats import P_VALUE, Format, Value, plain_interval
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.report.verdict_words import corrected_text, verdict

WEIGHTS_DIFFER: Final = "Equal work did NOT give equal weights, so nothing follows from these ratios. "
UNPROVEN: Final = "Equal work is not proven, so nothing follows from these ratios. "
RATIO: Final = Format(3)


def comparisons_title(baseline: str) -> str:
    """The section's title."""
    return f"Against {baseline}"


def doubt_of(figures: Figures) -> str:
    """Why nothing follows from ratios between stacks; empty if nothing speaks against them."""
    if figures.weights_differ:
        return WEIGHTS_DIFFER
    return UNPROVEN if figures.unproven else ""


def comparisons_table(found: Sequence[StackComparison], baseline: str, doubt: str = "") -> Table:
    """Every comparison, after a `doubt` about all of them."""
    return Table(
        title=comparisons_title(baseline),
        before=doubt
        + (
            "Geometric means of the ratios between runs with the same seed; the intervals are Student's, of "
            f"their logarithms. {corrected_text([each.ratio.p for each in found])}"
        ),
        columns=columns(
            "stack",
            "workers",
            "epochs",
            "pairs",
            f"train_s over {baseline}",
            "95 % interval",
            "p (Holm)",
            "p of 3 % or more (TOST, Holm)",
            "verdict",
            words=("stack", "verdict"),
        ),
        rows=[
            [
                stack_text(each.cell.stack, each.cell.settings),
                Value(each.cell.workers),
                Value(each.cell.epochs),
                run_count(each.ratio.n),
                Value(each.ratio.ratio, RATIO),
                plain_interval(each.ratio.low, each.ratio.high, RATIO),
                Value(each.ratio.p, P_VALUE),
                Value(each.ratio.equivalent_p, P_VALUE),
                verdict(each.ratio),
            ]
            for each in found
        ],
    )
