"""The stacks against the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.comparisons import StackComparison
from experiments.analysis.figures import Figures
from experiments.analysis.noise import Noise
from experiments.report.formats import (
    P_VALUE,
    Format,
    Value,
    interval,
    number,
    plain_interval,
)
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.report.verdict_words import corrected_text, percent_text, verdict
from experiments.util.words import counted, listed

WEIGHTS_DIFFER: Final = "Equal work did NOT give equal weights, so nothing follows from these ratios. "
UNPROVEN: Final = "Equal work is not proven, so nothing follows from these ratios. "
NO_A_A: Final = (
    "The matrix repeats no run of {baseline} (repetition), so how far apart runs are that differ in nothing "
    "was not measured."
)
RATIO: Final = Format(3)
STEP: Final = Format(1, signed=True, factor=1000)


def comparisons_title(baseline: str) -> str:
    """The section's title."""
    return f"Against {baseline}"


def doubt_of(figures: Figures) -> str:
    """Why nothing follows from ratios between stacks; empty if nothing speaks against them."""
    if figures.weights_differ:
        return WEIGHTS_DIFFER
    return UNPROVEN if figures.unproven or (figures.works_apart and not figures.works) else ""


def excluded_sentences(found: Sequence[StackComparison]) -> list[str]:
    """What the intervals exclude of what the dissertation's stacks take more for a step."""
    groups: dict[tuple[str, int, bool], list[StackComparison]] = {}
    for each in found:
        if each.excludes_published and each.published_step_s is not None:
            above = each.more_a_step.mean > each.published_step_s
            groups.setdefault((each.cell.stack, each.cell.workers, above), []).append(each)
    sentences = []
    for (stack, workers, _), excluded in groups.items():
        lows = [each.more_a_step.low for each in excluded if each.more_a_step.low is not None]
        highs = [each.more_a_step.high for each in excluded if each.more_a_step.high is not None]
        judged = sum((each.cell.stack, each.cell.workers) == (stack, workers) for each in found)
        cells = "" if len(excluded) == judged else f" in {len(excluded)} of {judged} cells"
        sentences.append(
            f"With {counted(workers, 'worker')} {stack} adds {interval(min(lows), max(highs), STEP)} ms to a "
            f"step{cells}; what it adds in the dissertation "
            f"({number(excluded[0].published_step_s, STEP)} ms) is excluded here."
        )
    return sentences


def noise_sentences(noise: Noise, baseline: str) -> list[str]:
    """How far apart runs are that differ in nothing; nothing if the matrix repeats none."""
    if not noise.again:
        return []
    if noise.floor is None:
        return [f"{baseline} was repeated, but not often enough to say how far apart equal runs are."]
    found = [
        f"{interval(each.ratio.low, each.ratio.high, RATIO)} times ({counted(each.cell.workers, 'worker')}, "
        f"{counted(each.cell.epochs, 'epoch')}, {counted(each.ratio.n, 'pair')})"
        for each in noise.again
        if each.floor is not None
    ]
    return [
        f"Repeated with nothing changed (A/A), runs of {baseline} took {listed(found)} as long as the first "
        f"ones. So much may be noise, here and in other cells: no difference in train_s below "
        f"{percent_text(noise.floor)} is claimed."
    ]


def comparisons_table(
    found: Sequence[StackComparison], baseline: str, noise: Noise, doubt: str = ""
) -> Table:
    """Every comparison, with what is known of the noise, after a `doubt` about all of them."""
    return Table(
        title=comparisons_title(baseline),
        before=doubt
        + (
            "Geometric means of the ratios between runs with the same seed; the intervals are Student's, of "
            f"their logarithms. {corrected_text([each.ratio.p for each in found])} "
            "Ms more a step: of train_s, evaluation and what is fixed included; the dissertation's by a line "
            "through its two lengths, without what is fixed."
        ),
        columns=columns(
            "stack",
            "workers",
            "epochs",
            "pairs",
            f"train_s over {baseline}",
            "95 % interval",
            "p (Bonferroni)",
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
                Value(each.more_a_step.mean, STEP, low=each.more_a_step.low, high=each.more_a_step.high),
                Value(each.published_step_s, STEP),
                verdict(each.ratio),
            ]
            for each in found
        ],
        after=[] if noise.again else [NO_A_A.format(baseline=baseline)],
    )
