"""What one campaign says of the suspects that may have slowed a stack of the dissertation down.

A suspect is the stack itself, or a factor that is paid more for on the stack than on the baseline. Where only
one stack was run with a factor, nothing was measured against it. What it costs is then a suspect only if the
dissertation had it on that stack and not on its baseline.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final, Literal

from experiments.analysis.added import PARTS, STEPS, Added
from experiments.analysis.analysis import Analysis
from experiments.analysis.comparisons import STEPS as PUBLISHED_STEPS
from experiments.analysis.comparisons import sibling, step_s
from experiments.analysis.dissertation import Dissertation
from experiments.analysis.factors import MS, FactorEffect, Recipes
from experiments.analysis.figures import REPETITION, Cell, Figures
from experiments.analysis.own_clock import own_ms
from experiments.analysis.pairing import outside_s, paired_by_seed
from experiments.analysis.statistics import Difference, mean_difference
from experiments.analysis.step_samples import (
    PUBLISHED,
    Samples,
    Unlike,
    samples_a_step,
    unlike_published,
)
from experiments.matrix.model import CONDITION_FIELDS
from experiments.records.record import Record
from training.spec import Conditions

Kind = Literal["training", "simulated", "script"]
KINDS: Final[tuple[Kind, ...]] = ("training", "simulated", "script")  # never in one sum
Doubt = (
    Unlike
    | Literal["workers", "nothing evaluated", "one stack", "unsettled", "unequal", "mixed", "processor"]
)
RELEASE: Final = "release"  # as a factor: the dissertation's of a stack, against the one that the cluster has
OPTIONS: Final = {"--lines": "printed_lines"}  # of scripts, by the name of the condition that is the same
IN_EPOCHS: Final = (STEPS, "evaluation")  # parts that grow with the work
ONCE_AN_EPOCH: Final = ("loader_start",)  # conditions whose cost comes as an epoch begins
OF_THE_PROCESSOR: Final = ("threads",)  # conditions by which a processor trains faster, but no GPU


@dataclass(frozen=True)
class Sum:
    """A sum, and the sums of the ends between which its parts lie."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Suspect:
    """A factor's value on a stack, or the stack itself: ms of train_s a step, or seconds of a run once."""

    campaign: str  # the matrix
    kind: Kind
    stack: str  # that it was measured on
    workers: int
    factor: str  # a condition, RELEASE, or a part of a run; empty: the stack itself
    more: Difference  # on the stack than on the baseline
    value: Any = None
    first: Any = None
    on_baseline: Difference | None = None
    samples: Samples | None = None  # for a step; None: it trains nothing, or this is of no step
    steps: int | None = None  # of an epoch; None: the same
    doubt: Doubt | None = None  # why it explains nothing of the dissertation's figures
    noise: float = 0.0  # the noise floor, in the same unit
    conditions: Conditions | None = None  # of the stack itself

    @property
    def measured(self) -> Sum:
        """As it is, with the ends of its interval; what comes once an epoch, for a step of one there."""
        assert self.more.low is not None and self.more.high is not None  # only such are asked for
        return Sum(*(each * self._share for each in (self.more.mean, self.more.low, self.more.high)))

    @property
    def bounds(self) -> Sum:
        """Between what it lies for a step with the dissertation's samples, with the noise floor added.

        How a cost is shared out among trained samples, evaluated ones and the step itself is not known: the
        ends are those of all being in whichever part takes it farthest (parts that cancel out go farther).
        """
        found, noise = self.measured, self.noise * self._share
        low, high = found.low - noise, found.high + noise
        times = [1.0]
        if self.samples is not None and self.factor not in ONCE_AN_EPOCH:
            times += [
                PUBLISHED.trained / self.samples.trained,
                PUBLISHED.evaluated / self.samples.evaluated,
            ]
        return Sum(found.mean, min(low * each for each in times), max(high * each for each in times))

    @property
    def _share(self) -> float:
        """How much of it a step of the dissertation has: what comes once an epoch is shared by more steps."""
        if self.factor in ONCE_AN_EPOCH and self.steps is not None:
            return self.steps / PUBLISHED_STEPS[self.workers]
        return 1.0


@dataclass(frozen=True)
class _Alone:
    """A cell against another one that differs in one thing, both of them without the baseline beside them."""

    cell: Cell
    base: Cell
    factor: str
    value: Any
    first: Any
    doubt: Doubt | None
    sign: int  # -1: what the baseline pays for it, the stack does not


def suspects(analysis: Analysis, stack: str, workers: Collection[int]) -> Iterator[Suspect]:
    """What a campaign says of a step of a stack, which the dissertation has with so many `workers`."""
    figures = analysis.figures
    if figures.campaign.baseline == analysis.dissertation.stacks[0]:
        for name in analysis.dissertation.family(stack):
            for recipe in (each for each in analysis.recipes if each.other == name):
                yield from _of_recipe(recipe, figures, workers)
            yield from _of_cells(analysis, name, workers)
    floor = analysis.noise.floor or 0.0
    for each in _alone(analysis, stack):
        pairs = paired_by_seed(each.cell.records, each.base.records)
        more = _mean([each.sign * (_step_ms(above) - _step_ms(below)) for above, below in pairs])
        yield replace(
            _suspect(each, more, figures),
            samples=_samples([each.cell], figures),
            steps=_steps([each.cell], figures),
            doubt=each.doubt or _doubt([each.cell], figures, workers),
            noise=floor * fmean(_step_ms(below) for _, below in pairs),
        )


def alone_once(analysis: Analysis, stack: str) -> Iterator[Suspect]:
    """What such factors cost a run outside of train_s, in seconds; they don't grow with the work."""
    for each in _alone(analysis, stack) if kind_of(analysis.figures) == "training" else ():
        pairs = paired_by_seed(each.cell.records, each.base.records)
        more = _mean([each.sign * (outside_s(above) - outside_s(below)) for above, below in pairs])
        yield _suspect(each, more, analysis.figures)


def parts_once(found: Added, stack: str, campaign: str) -> Iterator[Suspect]:
    """The parts of a run that don't grow with the work: seconds more than on the baseline."""
    for part in found.parts:
        if part.name in PARTS and part.name not in IN_EPOCHS and stack in part.added:
            more = part.added[stack]
            yield Suspect(campaign, "training", stack, found.baseline.workers, part.name, more)


def kind_of(figures: Figures) -> Kind:
    """What a campaign's runs do."""
    if figures.campaign.simulated:
        return "simulated"
    return "script" if figures.campaign.has_own_loop else "training"


def _of_recipe(recipe: Recipes, figures: Figures, workers: Collection[int]) -> Iterator[Suspect]:
    """The stack itself, if it was measured with the dissertation's kind of step, and every factor."""
    cells = _cells(figures, recipe.other, recipe.workers, recipe.epochs)
    kind, common = kind_of(figures), (figures.campaign.matrix, kind_of(figures), recipe.other, recipe.workers)
    itself = Suspect(
        *(*common, "", recipe.stack_alone),
        samples=_samples(cells[:1], figures),
        doubt=_doubt(cells[:1], figures, workers),
        noise=recipe.stack_alone.floor or 0.0,
        conditions=cells[0].records[0].specification.conditions,
    )
    if itself.doubt is None:  # otherwise its cells are asked one by one
        yield itself
    # What belongs to the work, as its batch does, is no suspect.
    for effect in (of for of in recipe.effects if kind == "script" or of.factor in CONDITION_FIELDS):
        there = [cell for cell in cells if cell.axes[effect.factor] == effect.value]
        factor, value, first = _named(effect)
        yield Suspect(
            *(*common, factor, effect.more_on_other, value, first),
            on_baseline=effect.on_baseline,
            samples=_samples(there, figures),
            steps=_steps(there, figures),
            doubt=_doubt(there, figures, workers) or _of_a_factor(effect.factor, recipe, there, figures),
            noise=effect.more_on_other.floor or 0.0,
        )


def _of_cells(analysis: Analysis, stack: str, workers: Collection[int]) -> Iterator[Suspect]:
    """The stack itself by its cells with every condition at its first value, where no recipe has it."""
    figures = analysis.figures
    told = {
        (each.workers, each.epochs)
        for each in analysis.recipes
        if each.other == stack
        and _doubt(_cells(figures, stack, each.workers, each.epochs)[:1], figures, workers) is None
    }
    for each in analysis.comparisons:
        cell = each.cell
        if cell.stack == stack and (cell.workers, cell.epochs) not in told and not _changed(cell, figures):
            yield Suspect(
                *(figures.campaign.matrix, kind_of(figures), stack, cell.workers),
                factor="",
                more=_in_ms(each.more_a_step),
                samples=_samples([cell], figures),
                doubt=_doubt([cell], figures, workers),
                noise=each.noise_step_s * MS,
                conditions=cell.records[0].specification.conditions,
            )


def _alone(analysis: Analysis, stack: str) -> Iterator[_Alone]:
    """What was measured on the stack alone, or on the baseline alone if only one of them had it."""
    figures, there = analysis.figures, analysis.dissertation
    baseline, family = there.stacks[0], there.family(stack)
    against = (
        {(each.other, effect.factor) for each in analysis.recipes for effect in each.effects}
        if figures.campaign.baseline == baseline
        else set()
    )
    known = [cell for cell in figures.cells if cell.train_s is not None and REPETITION not in cell.settings]
    for cell in known:
        if cell.stack not in (*family, baseline):
            continue
        changed, measured_on = _changed(cell, figures), family if cell.stack == baseline else [cell.stack]
        if len(changed) == 1 and not any((each, *changed) in against for each in measured_on):
            ((factor, first),) = changed.items()
            base, value = sibling(known, cell, **{factor: first}), cell.axes[factor]
            doubt, sign = _had(there, stack, factor, value), 1
            if cell.stack == baseline and doubt == "one stack":
                doubt, sign = _had(there, baseline, factor, value), -1
            if base is not None and (cell.stack in family or doubt != "one stack"):
                yield from _with_pairs(_Alone(cell, base, factor, value, first, doubt, sign))
        if cell.stack in there.releases and not changed:
            base = sibling(known, cell, stack=stack)
            if base is not None:
                yield from _with_pairs(_Alone(cell, base, RELEASE, cell.stack, stack, None, 1))


def _with_pairs(found: _Alone) -> Iterator[_Alone]:
    pairs = paired_by_seed(found.cell.records, found.base.records)
    if pairs:
        unequal = any(above.weights_digest != below.weights_digest for above, below in pairs)
        yield replace(found, doubt="unequal") if unequal else found


def _had(there: Dissertation, stack: str, factor: str, value: Any) -> Doubt | None:
    """Whether the dissertation had a factor so on this stack alone; None: it had."""
    for each in there.own_conditions:
        if (each.stack, each.condition, each.value) == (stack, factor, value):
            return None if each.settled else "unsettled"
    return "one stack"


def _suspect(found: _Alone, more: Difference, figures: Figures) -> Suspect:
    return Suspect(
        *(figures.campaign.matrix, kind_of(figures), found.cell.stack, found.cell.workers),
        factor=found.factor,
        more=more,
        value=found.value,
        first=found.first,
        doubt=found.doubt,
    )


def _cells(figures: Figures, stack: str, workers: int, epochs: int) -> list[Cell]:
    """Those with runs, in the order of the matrix: the first has every factor at its first value."""
    return [
        cell
        for cell in figures.cells
        if (cell.stack, cell.workers, cell.epochs) == (stack, workers, epochs)
        and cell.records
        and REPETITION not in cell.settings
    ]


def _changed(cell: Cell, figures: Figures) -> dict[str, Any]:
    """The conditions that a cell has at another value than the first, with that first value."""
    first = figures.cells[0].axes
    return {
        name: first[name]
        for name, value in cell.settings.items()
        if name in CONDITION_FIELDS and value != first[name]
    }


def _samples(cells: Sequence[Cell], figures: Figures) -> Samples | None:
    """Of a step of these cells, the fewest; None if nothing is trained."""
    if kind_of(figures) != "training":
        return None
    each = [samples_a_step(cell.records[0].specification) for cell in cells]
    return Samples(min(step.trained for step in each), min(step.evaluated for step in each))


def _steps(cells: Sequence[Cell], figures: Figures) -> int | None:
    """Of an epoch of these cells, the most; None if nothing is trained."""
    if kind_of(figures) != "training":
        return None
    return max(cell.records[0].specification.work.steps_per_epoch for cell in cells)


def _doubt(cells: Sequence[Cell], figures: Figures, workers: Collection[int]) -> Doubt | None:
    """Why steps of these cells don't stand beside the dissertation's; those of other kinds never do."""
    if kind_of(figures) != "training":
        return None
    for cell in cells:
        specification = cell.records[0].specification
        unlike = unlike_published(specification)
        if unlike is not None:
            return unlike
        if cell.workers not in workers:
            return "workers"
        if not samples_a_step(specification).evaluated:
            return "nothing evaluated"
    return None


def _of_a_factor(factor: str, recipe: Recipes, cells: Sequence[Cell], figures: Figures) -> Doubt | None:
    """Why what a factor costs is not what it cost in the dissertation, whose GPUs trained."""
    if factor in recipe.mixed:
        return "mixed"
    trained_by = cells[0].records[0].specification.conditions.device
    if factor in OF_THE_PROCESSOR and kind_of(figures) == "training" and trained_by == "cpu":
        return "processor"
    return None


def _named(effect: FactorEffect) -> tuple[str, Any, Any]:
    """A factor's name, value and first value; of a script, those of the only option that differs.

    So what a script is told and what a condition says are the same factor.
    """
    both = [
        each.get("arguments", []) if isinstance(each, dict) else [] for each in (effect.value, effect.first)
    ]
    if len(both[0]) == len(both[1]):
        apart = [at for at, (own, other) in enumerate(zip(*both, strict=True)) if own != other]
        if len(apart) == 1 and apart[0] > 0:
            option = both[0][apart[0] - 1]
            return OPTIONS.get(option, option), *(_number(arguments[apart[0]]) for arguments in both)
    return effect.factor, effect.value, effect.first


def _number(text: str) -> Any:
    return json.loads(text) if text.isdecimal() else text


def _step_ms(record: Record) -> float:
    own = own_ms(record)
    return step_s(record) * MS if own is None else own


def _mean(differences: Sequence[float]) -> Difference:
    found = mean_difference(differences)
    assert found is not None  # there are pairs
    return found


def _in_ms(found: Difference) -> Difference:
    def ms(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * MS

    return replace(found, mean=found.mean * MS, low=ms(found.low), high=ms(found.high), error=ms(found.error))
