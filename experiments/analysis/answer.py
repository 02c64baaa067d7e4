"""What is known of the dissertation's question, by several campaigns: which suspect adds how much to a step.

The dissertation's stacks took some time more than its baseline for every step, and some once. Each suspect
was measured on two stacks; only what one of them pays *more* for it can explain a ratio between them. What
all suspects together can't explain is *unexplained*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from experiments.analysis.added import PARTS, STEPS, Added
from experiments.analysis.analysis import Analysis
from experiments.analysis.comparisons import STEPS as STEPS_OF
from experiments.analysis.comparisons import published_split
from experiments.analysis.dissertation import Dissertation
from experiments.analysis.factors import MS
from experiments.analysis.statistics import Difference
from experiments.matrix.model import CONDITION_FIELDS

Kind = Literal["training", "simulated", "script"]
KINDS: Final[tuple[Kind, ...]] = ("training", "simulated", "script")  # what says more comes first
IN_EPOCHS: Final = (STEPS, "evaluation")  # parts that grow with the work


@dataclass(frozen=True)
class Suspect:
    """A factor's value on a stack, or the stack itself, in ms of train_s a step."""

    campaign: str  # the matrix
    kind: Kind
    workers: int
    factor: str  # empty: the stack itself, with every factor at its first value
    value: Any
    first: Any
    more: Difference  # on the stack than on the baseline
    on_baseline: Difference | None = None


@dataclass(frozen=True)
class Sum:
    """A sum, and the sums of the intervals' ends, between which it lies if every interval holds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Published:
    """What a stack of the dissertation took more than its baseline, by number of workers."""

    step_ms: dict[int, float]
    once_s: dict[int, float]


@dataclass(frozen=True)
class Answer:
    """What is known of one stack."""

    stack: str
    baseline: str
    published: Published
    suspects: list[Suspect]  # all with an interval, the stack itself first
    counted: list[Suspect]  # of each factor the one that can explain most
    once: Added | None  # the parts of its runs that don't grow with the work, where there are any

    @property
    def explained_ms(self) -> Sum:
        """What the suspects add up to, each taken once, in ms a step."""
        return total([suspect.more for suspect in self.counted])

    @property
    def parts(self) -> dict[str, Difference]:
        """Seconds that the stack takes more once, by part."""
        if self.once is None:
            return {}
        return {
            part.name: part.added[self.stack]
            for part in self.once.parts
            if part.name in PARTS and part.name not in IN_EPOCHS and self.stack in part.added
        }


def answers(analyses: Sequence[Analysis]) -> list[Answer]:
    """One answer for each stack that the dissertation compares with its baseline, by these campaigns."""
    if not analyses:
        return []
    found, there = [], analyses[0].dissertation
    baseline, *others = there.stacks
    for stack in others:
        suspects = [each for analysis in analyses for each in _suspects(analysis, stack)]
        suspects.sort(key=lambda each: (bool(each.factor), each.factor))
        once = [each for analysis in analyses for each in _once(analysis, stack)]
        found.append(
            Answer(
                stack=stack,
                baseline=baseline,
                published=_published(there, stack, baseline),
                suspects=suspects,
                counted=_counted(suspects),
                once=max(once, key=lambda each: len(each.baseline.records), default=None),
            )
        )
    return found


def _published(there: Dissertation, stack: str, baseline: str) -> Published:
    step_ms, once_s = {}, {}
    for workers in STEPS_OF:
        own, base = (published_split(there, each, workers) for each in (stack, baseline))
        if own is not None and base is not None:
            step_ms[workers] = (own.step_s - base.step_s) * MS
            once_s[workers] = own.fixed_s - base.fixed_s
    return Published(step_ms, once_s)


def _suspects(analysis: Analysis, stack: str) -> Iterator[Suspect]:
    """What a campaign says of a stack; without factors, only of the stack itself."""
    matrix, kind = analysis.figures.campaign.matrix, _kind(analysis)
    if analysis.figures.campaign.baseline != analysis.dissertation.stacks[0]:
        return
    mine = [each for each in analysis.recipes if each.other == stack]
    for each in mine:
        yield Suspect(matrix, kind, each.workers, "", None, None, each.stack_alone)
        # What belongs to the work, as its batch does, is no suspect.
        for effect in (of for of in each.effects if kind == "script" or of.factor in CONDITION_FIELDS):
            yield Suspect(
                *(matrix, kind, each.workers, effect.factor, effect.value, effect.first),
                more=effect.more_on_other,
                on_baseline=effect.on_baseline,
            )
    if not mine:
        for comparison in analysis.comparisons:
            if comparison.cell.stack == stack:
                more = _in_ms(comparison.more_a_step)
                yield Suspect(matrix, kind, comparison.cell.workers, "", None, None, more)


def _kind(analysis: Analysis) -> Kind:
    if analysis.figures.campaign.simulated:
        return "simulated"
    own = any(record.specification.work.data.has_own_loop for record in analysis.figures.counting)
    return "script" if own else "training"


def _counted(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Of each factor the best evidence, and of several values the one that can explain most.

    Training is better evidence than a simulation, and that than a script; of two campaigns of a kind, that
    with the narrower interval is.
    """
    chosen: dict[str, Suspect] = {}
    for factor in dict.fromkeys(each.factor for each in suspects):
        known = [each for each in suspects if each.factor == factor and each.more.high is not None]
        best = [each for kind in KINDS for each in known if each.kind == kind][:1]
        alike = [each for each in known if best and each.kind == best[0].kind]
        by_value: dict[str, Suspect] = {}
        for each in sorted(alike, key=_width):
            by_value.setdefault(repr(each.value), each)
        if by_value:
            chosen[factor] = max(by_value.values(), key=lambda each: each.more.high or 0.0)
    return list(chosen.values())


def _width(suspect: Suspect) -> float:
    assert suspect.more.low is not None and suspect.more.high is not None  # only such are asked for
    return suspect.more.high - suspect.more.low


def _once(analysis: Analysis, stack: str) -> Iterator[Added]:
    if _kind(analysis) == "training":
        yield from (each for each in analysis.added if any(cell.stack == stack for cell in each.cells))


def _in_ms(found: Difference) -> Difference:
    def ms(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * MS

    return replace(found, mean=found.mean * MS, low=ms(found.low), high=ms(found.high), error=ms(found.error))


def total(found: Sequence[Difference]) -> Sum:
    """The sum of differences; one without an interval counts with its mean."""
    return Sum(
        sum(each.mean for each in found),
        sum(each.mean if each.low is None else each.low for each in found),
        sum(each.mean if each.high is None else each.high for each in found),
    )
