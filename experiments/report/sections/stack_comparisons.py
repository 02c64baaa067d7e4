"""The stacks against the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.comparisons import StackComparison
from experiments.analysis.figures import Figures
from experiments.analysis.noise import Noise
from experiments.analysis.statistics import Difference
from experiments.analysis.step_samples import BATCH
from experiments.report.formats import (
    P_VALUE,
    Format,
    Value,
    interval,
    number,
    plain_interval,
    quantity,
    span,
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
MORE: Final = Format(2, signed=True)
S: Final = Format(2, unit=" s")


def comparisons_title(baseline: str) -> str:
    """The section's title."""
    return f"Against {baseline}"


def doubt_of(figures: Figures) -> str:
    """Why nothing follows from ratios between stacks; empty if nothing speaks against them."""
    if figures.weights_differ:
        return WEIGHTS_DIFFER
    return UNPROVEN if figures.unproven or (figures.works_apart and not figures.works) else ""


def excluded_sentences(found: Sequence[StackComparison]) -> list[str]:
    """What the intervals exclude of what the dissertation's stacks take more for a step.

    The dissertation evaluates as many samples as it trains on. Where runs here evaluate fewer or more, all is
    excluded that its figure would be for as many, whatever part of it is evaluation.
    """
    groups: dict[tuple[str, int, bool], list[StackComparison]] = {}
    for each in found:
        if each.excludes_published and each.published_step_s is not None:
            above = each.more_a_step.mean > each.published_step_s
            groups.setdefault((each.cell.stack, each.cell.workers, above), []).append(each)
    sentences = []
    for (stack, workers, above), excluded in groups.items():
        lows = [each.more_a_step.low for each in excluded if each.more_a_step.low is not None]
        highs = [each.more_a_step.high for each in excluded if each.more_a_step.high is not None]
        judged = sum((each.cell.stack, each.cell.workers) == (stack, workers) for each in found)
        cells = "" if len(excluded) == judged else f" in {len(excluded)} of {judged} cells"
        ends = (
            f"that is more than it adds in the dissertation ({_published(excluded)})"
            if above
            else f"what it adds in the dissertation ({_published(excluded)}) is excluded here"
        )
        sentences.append(
            f"With {counted(workers, 'worker')} {stack} adds {interval(min(lows), max(highs), STEP)} ms to a "
            f"step{cells}; {ends}."
        )
    return sentences


def _published(found: Sequence[StackComparison]) -> str:
    """The dissertation's figure, and what it would be for steps that evaluate as much as these."""
    there = f"{number(found[0].published_step_s, STEP)} ms"
    ends = [each.published_ends_s for each in found if each.published_ends_s is not None]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if number(low, STEP) == number(high, STEP):
        return there
    here = span(sorted({round(each.evaluated) for each in found}))
    return (
        f"{there} with {BATCH} samples evaluated by each rank for the {BATCH} of a step; with {here}, as "
        f"here, {interval(low, high, STEP)} ms, whatever part of it is evaluation"
    )


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
        f"{percent_text(noise.floor)} is claimed"
        + ("." if noise.outside_s is None else f", and none outside it below {quantity(noise.outside_s, S)}.")
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
            "Ms more a step: of train_s, evaluation and what is fixed included. The dissertation's is by a "
            "line through its two lengths, without what is fixed; its ranks evaluate as many samples as they "
            f"train on, {BATCH} for each step. Evaluating as much as here, it would be between the ends "
            "beside it: one takes all of it for evaluation, the other none. S more outside: of total_s less "
            "train_s. The intervals of each of these columns hold at once, too."
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
            "dissertation, evaluating as much, ms",
            "s more outside",
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
                step_value(each.more_a_step),
                Value(each.published_step_s, STEP),
                _ends(each),
                seconds_value(each.more_outside),
                verdict(each.ratio),
            ]
            for each in found
        ],
        after=[] if noise.again else [NO_A_A.format(baseline=baseline)],
    )


def step_value(found: Difference | None) -> Value:
    """More seconds a step, as a cell in ms."""
    return Value(None) if found is None else Value(found.mean, STEP, low=found.low, high=found.high)


def seconds_value(found: Difference | None) -> Value:
    """More seconds, as a cell."""
    return Value(None) if found is None else Value(found.mean, MORE, low=found.low, high=found.high)


def _ends(each: StackComparison) -> Value:
    low, high = each.published_ends_s or (None, None)
    return plain_interval(low, high, STEP)
