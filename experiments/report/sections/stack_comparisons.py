"""The stacks against the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.comparisons import StackComparison
from experiments.analysis.figures import Figures
from experiments.report.formats import P_VALUE, Format, Value, interval, number, plain_interval
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.report.verdict_words import corrected_text, verdict

WEIGHTS_DIFFER: Final = "Equal work did NOT give equal weights, so nothing follows from these ratios. "
UNPROVEN: Final = "Equal work is not proven, so nothing follows from these ratios. "
RATIO: Final = Format(3)
STEP: Final = Format(1, signed=True, factor=1000)


def comparisons_title(baseline: str) -> str:
    """The section's title."""
    return f"Against {baseline}"


def doubt_of(figures: Figures) -> str:
    """Why nothing follows from ratios between stacks; empty if nothing speaks against them."""
    if figures.weights_differ:
        return WEIGHTS_DIFFER
    return UNPROVEN if figures.unproven else ""


def excluded_sentences(found: Sequence[StackComparison]) -> list[str]:
    """What the intervals exclude of what the dissertation's stacks take more for a step, stack by stack."""
    sentences = []
    for stack in dict.fromkeys(each.cell.stack for each in found):
        judged = [each for each in found if each.cell.stack == stack and each.published_step_s is not None]
        excluded = [each for each in judged if each.excludes_published]
        if excluded:
            lows = [each.more_a_step.low for each in excluded if each.more_a_step.low is not None]
            highs = [each.more_a_step.high for each in excluded if each.more_a_step.high is not None]
            there = [each.published_step_s for each in excluded if each.published_step_s is not None]
            cells = "" if len(excluded) == len(judged) else f" in {len(excluded)} of {len(judged)} cells"
            sentences.append(
                f"{stack} adds {interval(min(lows), max(highs), STEP)} ms to a step{cells}; what it adds in "
                f"the dissertation ({_ends(there)} ms) is excluded here."
            )
    return sentences


def _ends(values: Sequence[float]) -> str:
    """`+116.0`, or `+116.0 to +120.0`."""
    ends = list(dict.fromkeys(number(end, STEP) for end in (min(values), max(values))))
    return " to ".join(ends)


def comparisons_table(found: Sequence[StackComparison], baseline: str, doubt: str = "") -> Table:
    """Every comparison, after a `doubt` about all of them."""
    return Table(
        title=comparisons_title(baseline),
        before=doubt
        + (
            "Geometric means of the ratios between runs with the same seed; the intervals are Student's, of "
            f"their logarithms. {corrected_text([each.ratio.p for each in found])} "
            "Ms more a step: of train_s, evaluation included, with 95 % intervals that hold all at once "
            "(Bonferroni); the dissertation's by a line through its two lengths."
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
            "ms more a step",
            "dissertation, ms",
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
                Value(each.more_a_step.mean, STEP, low=each.more_a_step.low, high=each.more_a_step.high),
                Value(each.published_step_s, STEP),
                verdict(each.ratio),
            ]
            for each in found
        ],
    )
