"""What is known of the dissertation's question, by several campaigns: which suspect adds how much to a step.

The dissertation's stacks took some time more than its baseline for every step, and some once. Each suspect
was measured on two stacks, or on the only one that had it; only what one of them pays *more* for it can
explain a ratio between them. What all suspects together can't explain is *unexplained*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from experiments.analysis.analysis import Analysis
from experiments.analysis.comparisons import STEPS, published_split
from experiments.analysis.dissertation import Dissertation, dissertation
from experiments.analysis.factors import MS
from experiments.analysis.statistics import differences_together
from experiments.analysis.suspects import (
    KINDS,
    RELEASE,
    Kind,
    Sum,
    Suspect,
    alone_once,
    kind_of,
    parts_once,
    suspects,
)

Alone = Literal["less", "some", "wide"]


@dataclass(frozen=True)
class Published:
    """What a stack of the dissertation took more than its baseline, by number of workers."""

    step_ms: dict[int, float]
    once_s: dict[int, float]


@dataclass(frozen=True)
class Answer:
    """What is known of one stack.

    Intervals hold at once for all steps of one kind, and for all that a run takes once.
    """

    stack: str
    baseline: str
    published: Published
    steps: list[Suspect]  # ms a step, the stack itself first
    parts: list[Suspect]  # of its runs that don't grow with the work, in seconds
    once: list[Suspect]  # seconds more outside of train_s for factors that other stacks don't have

    def of(self, kind: Kind) -> list[Suspect]:
        """What runs of a kind say of a step."""
        return [each for each in self.steps if each.kind == kind]

    def counted(self, kind: Kind) -> list[Suspect]:
        """The stack itself, by its release of the dissertation if that was run, and of each factor one."""
        usable = [each for each in self.of(kind) if _is_usable(each)]
        alone = [each for each in usable if not each.factor]
        alone = [each for each in alone if each.stack != self.stack] or alone
        itself = [_most(alone)] if alone else []
        factors = [each for each in usable if each.factor and not any(_holds(own, each) for own in itself)]
        return [*itself, *self._counted(factors, itself)]

    @property
    def counted_once(self) -> list[Suspect]:
        """The parts, and of each factor one."""
        parts = [each for each in self.parts if _is_usable(each)]
        return [*parts, *self._counted([each for each in self.once if _is_usable(each)], parts)]

    def _counted(self, factors: Sequence[Suspect], direct: Sequence[Suspect]) -> list[Suspect]:
        """Of each factor the one that can explain most; the release only if it is not compared directly."""
        names = dict.fromkeys(each.factor for each in factors)
        if any(each.stack != self.stack for each in direct):
            names.pop(RELEASE, None)
        return [_most([each for each in factors if each.factor == name]) for name in names]


def answers(analyses: Sequence[Analysis]) -> list[Answer]:
    """One answer for each stack that the dissertation compares with its baseline, by these campaigns."""
    there = dissertation()
    looks = max((each.figures.campaign.looks for each in analyses), default=1)
    baseline, *others = there.stacks
    found = []
    for stack in others:
        published = _published(there, stack, baseline)
        steps = [each for one in analyses for each in suspects(one, stack, published.step_ms)]
        steps.sort(key=lambda each: (bool(each.factor), each.factor))
        by_kind = [_together([each for each in steps if each.kind == kind], looks) for kind in KINDS]
        parts = _parts(analyses, stack)
        once = [each for one in analyses for each in alone_once(one, stack)]
        together = _together([*parts, *once], looks)
        found.append(
            Answer(
                *(stack, baseline, published),
                steps=[each for kind in by_kind for each in kind],
                parts=together[: len(parts)],
                once=together[len(parts) :],
            )
        )
    return found


def explained(found: Iterable[Suspect]) -> Sum:
    """What suspects add up to, as measured."""
    return _sum([each.measured for each in found])


def bounds(found: Iterable[Suspect]) -> Sum:
    """Between what they lie with the dissertation's samples in a step, and with the noise."""
    return _sum([each.bounds for each in found])


def unexplained(published: Mapping[int, float], found: Sequence[Suspect]) -> Sum:
    """What suspects leave of the dissertation's figures, which are one for each number of workers."""
    there, known = list(published.values()), bounds(found)
    return Sum(sum(there) / len(there) - known.mean, min(there) - known.high, max(there) - known.low)


def by_themselves(answer: Answer) -> dict[Alone, list[Suspect]]:
    """What each suspect that counts for a step could explain of the dissertation's figure by itself.

    `less` than all of it; `some` if it is above zero, and perhaps all; or its interval is too `wide` to say.
    """
    least = min(answer.published.step_ms.values(), default=0.0)
    found: dict[Alone, list[Suspect]] = {"less": [], "some": [], "wide": []}
    for each in answer.counted("training"):
        kind: Alone = "less" if each.bounds.high < least else "some" if each.bounds.low > 0 else "wide"
        found[kind].append(each)
    return found


def _published(there: Dissertation, stack: str, baseline: str) -> Published:
    step_ms, once_s = {}, {}
    for workers in STEPS:
        own, base = (published_split(there, each, workers) for each in (stack, baseline))
        if own is not None and base is not None:
            step_ms[workers] = (own.step_s - base.step_s) * MS
            once_s[workers] = own.fixed_s - base.fixed_s
    return Published(step_ms, once_s)


def _parts(analyses: Sequence[Analysis], stack: str) -> list[Suspect]:
    """The parts of a run by the cell of the baseline with the most runs, if there is one.

    If some were compared with the dissertation's release of the stack, only they are asked.
    """
    found = [
        (name != stack, len(each.baseline.records), list(parts_once(each, name, one.figures.campaign.matrix)))
        for one in analyses
        if kind_of(one.figures) == "training" and one.figures.campaign.baseline == one.dissertation.stacks[0]
        for name in one.dissertation.family(stack)
        for each in one.added
        if any(cell.stack == name for cell in each.cells)
    ]
    return max(found, key=lambda each: each[:2], default=(False, 0, []))[2]


def _is_usable(found: Suspect) -> bool:
    return found.doubt is None and found.more.high is not None


def _most(alike: Sequence[Suspect]) -> Suspect:
    """Of several values, the one that can explain most, each by its sharpest evidence."""
    by_value: dict[str, Suspect] = {}
    for each in sorted(alike, key=lambda one: one.bounds.high - one.bounds.low):
        by_value.setdefault(repr(each.value), each)
    return max(by_value.values(), key=lambda each: each.bounds.high)


def _holds(itself: Suspect, factor: Suspect) -> bool:
    """Whether the stack itself was measured with that value of the factor, so that it is in it already."""
    return bool(getattr(itself.conditions, factor.factor, factor.first) == factor.value)


def _together(found: Sequence[Suspect], looks: int) -> list[Suspect]:
    """The same, with intervals that hold for all of them at once, those of the baseline included."""
    beside = [each.on_baseline for each in found if each.on_baseline is not None]
    corrected = iter(differences_together([*(each.more for each in found), *beside], looks))
    together = [replace(each, more=next(corrected)) for each in found]
    return [
        each if each.on_baseline is None else replace(each, on_baseline=next(corrected)) for each in together
    ]


def _sum(found: Sequence[Sum]) -> Sum:
    return Sum(
        sum(each.mean for each in found), sum(each.low for each in found), sum(each.high for each in found)
    )
