"""What each factor costs on each stack, and whether one stack pays more for it than the baseline.

Two recipes, which differ in their stack and in how they are launched and fed, can only differ in time because
of the stack itself, because a factor costs something on any stack, or because it costs more on one of them:
the interaction of stack and factor. Only the first and the last can explain a ratio between stacks, and the
first is what these factors leave unexplained.

The runs of one seed are one replicate of the design: a block of `attribution`, which does the arithmetic, in
reference coding from the first value of each axis. With a full factorial design the effects are plain
differences of means; a fraction of one will do. Where an effect is the sum of others, all of these are named,
and left out. A factor is taken not to change the effect of another one on the same stack; where a fraction is
so small that such a change would look like a third factor's cost, that is said, too.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from experiments.analysis.attribution import MS as MS
from experiments.analysis.attribution import (
    UNEXPLAINED,
    Cause,
    Measure,
    Run,
    Sum,
    Term,
    attribute,
    by_blocks,
    including,
    noise_floors,
    tell_apart,
    times_of,
)
from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import REPETITION, Cell, Figures
from experiments.analysis.own_clock import own_ms
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import Difference
from experiments.records.record import Record

Timed = tuple[Cell, Record]


@dataclass(frozen=True)
class FactorEffect:
    """A factor's value against its first one."""

    factor: str
    value: Any
    first: Any
    on_baseline: Difference
    on_other: Difference
    more_on_other: Difference  # the interaction


@dataclass(frozen=True)
class Costs:
    """What the other stack and the factors cost in one measure; all intervals hold at once."""

    stack_alone: Difference  # with every factor at its first value: what the factors leave unexplained
    effects: list[FactorEffect]

    @property
    def differences(self) -> list[Difference]:
        """All that is claimed together."""
        each = [(found.on_baseline, found.on_other, found.more_on_other) for found in self.effects]
        return [self.stack_alone, *(difference for three in each for difference in three)]


@dataclass(frozen=True)
class Recipes:
    """A stack against the baseline, with as many workers and epochs, over the factors of the matrix."""

    baseline: str
    other: str
    workers: int
    epochs: int
    costs: Mapping[Measure, Costs]  # of each measure that all these runs have
    own_clock: bool  # step_ms is by the script's own clock, not of train_s
    named: Cause | None  # of all measures, the largest cost in noise floors that may be claimed
    floors: Mapping[Measure, float]  # noise floors, of the measures that have one
    confounded: list[str]  # what the runs can't tell apart, in words
    in_stack_alone: list[str]  # those of them that the cost of the stack itself includes
    mixed: Mapping[str, list[tuple[str, str]]]  # by factor: pairs whose interaction looks like its cost
    seeds: int
    seeds_left_out: int  # that lack runs, or have other cells than most
    cells: int  # of the design
    of: int  # cells of the full factorial

    @property
    def stack_alone(self) -> Difference:
        """The stack itself, in ms a step."""
        return self.costs["step_ms"].stack_alone

    @property
    def effects(self) -> list[FactorEffect]:
        """The factors, in ms a step."""
        return self.costs["step_ms"].effects

    @property
    def by_seeds(self) -> bool:
        """Whether intervals are over the seeds, or else from what one fit leaves over."""
        return by_blocks(self.seeds)


def recipes(figures: Figures, floor: float | None = None) -> list[Recipes]:
    """Every stack against the baseline, where the matrix crosses stacks with further axes; else nothing.

    `floor` is the noise floor, as a fraction of train_s: of the baseline's step with the first values. Those
    of the other measures come from the same repeated runs.
    """
    baseline = figures.campaign.baseline
    groups: dict[tuple[int, int], list[Cell]] = {}
    for cell in figures.cells:
        if REPETITION in cell.settings:
            continue
        groups.setdefault((cell.workers, cell.epochs), []).append(cell)
    floors = _floors(figures)
    return [
        found
        for cells in groups.values()
        for other in dict.fromkeys(cell.stack for cell in cells if cell.stack != baseline)
        if (found := _recipes(cells, baseline, other, floor, floors, figures.campaign.looks)) is not None
    ]


def _floors(figures: Figures) -> dict[Measure, float]:
    """The noise floors by the baseline's repeated runs, the largest of all cells.

    That of a step is only among them if scripts measure it; that of train_s is known as a fraction.
    """
    repeated = [
        pairs
        for cell in figures.cells
        if cell.stack == figures.campaign.baseline
        and (first := sibling(figures.cells, cell, **{REPETITION: 1})) is not None
        and first is not cell
        and (
            pairs := [
                pair for pair in paired_by_seed(cell.records, first.records) if all(map(_has_time, pair))
            ]
        )
    ]
    found: dict[Measure, float] = {}
    for pairs in repeated:
        twice = [(_times(first), _times(again)) for again, first in pairs]
        for name, floor in noise_floors(twice, figures.campaign.looks * len(repeated)).items():
            found[name] = max(floor, found.get(name, 0.0))
    if not any(_has_own_clock(cell) for cell in figures.cells):
        found.pop("step_ms", None)
    return found


def _recipes(
    cells: Sequence[Cell],
    baseline: str,
    other: str,
    floor: float | None,
    floors: Mapping[Measure, float],
    looks: int,
) -> Recipes | None:
    """Two stacks over the factors of these cells; None if there are none, or too few runs."""
    by_seed = _runs_by_seed([cell for cell in cells if cell.stack in (baseline, other)])
    whole = [cell for cell, _ in max(by_seed.values(), key=len, default=[])]
    values = _values(whole)
    levels = [(name, value) for name, found in values.items() for value in found[1:]]
    terms = [UNEXPLAINED, *(Term(False, *each) for each in levels), *(Term(True, *each) for each in levels)]
    held = [_held(cell, terms, other) for cell in whole]
    kept, lost = _estimable(terms, held)
    within = {term: including(held, kept, term) for term in lost}
    mixed = frozenset[Term]().union(*within.values())
    # A seed with other values would be counted among the first ones.
    known = {seed: runs for seed, runs in by_seed.items() if _has_only(values, runs)}
    solved = {
        seed: runs
        for seed, runs in known.items()
        if tell_apart([_held(cell, kept, other) for cell, _ in runs], kept)
    }
    if not levels or UNEXPLAINED not in kept or not solved:
        return None
    told_apart = [each for each in levels if {Term(False, *each), Term(True, *each)} <= {*kept} - mixed]
    first = {name: found[0] for name, found in values.items()}
    meant = {_text(value): value for cell in whole for value in cell.settings.values()}
    usual = [
        _times(record)["step_ms"]
        for runs in known.values()
        for cell, record in runs
        if cell.stack == baseline and all(_text(cell.axes[name]) == value for name, value in first.items())
    ]
    if floor is not None and usual:
        floors = {"step_ms": floor * fmean(usual), **floors}
    sums: list[Sum] = [(UNEXPLAINED,)]
    for level in told_apart:
        alone, more = Term(False, *level), Term(True, *level)
        sums += [(alone,), (alone, more), (more,)]
    found = attribute(
        [
            Run(seed, cell.stack == other, _held(cell, kept, other), _times(record))
            for seed, runs in solved.items()
            for cell, record in runs
        ],
        kept,
        sums,
        floors,
        looks,
    )
    costs = {}
    for measure, each in found.costs.items():
        together = [each[terms] for terms in sums]
        costs[measure] = Costs(
            stack_alone=together[0],
            effects=[
                FactorEffect(name, meant[value], meant[values[name][0]], *three)
                for (name, value), *three in zip(
                    told_apart, together[1::3], together[2::3], together[3::3], strict=True
                )
            ],
        )
    return Recipes(
        baseline=baseline,
        other=other,
        workers=cells[0].workers,
        epochs=cells[0].epochs,
        costs=costs,
        own_clock=_has_own_clock(cells[0]),
        named=found.named,
        floors=floors,
        confounded=[
            _words(term, meant, baseline, other)
            for term in terms
            if term in lost or (term in mixed and term != UNEXPLAINED)
        ],
        in_stack_alone=[_words(term, meant, baseline, other) for term in lost if UNEXPLAINED in within[term]],
        mixed=_mixed([cell for cell in whole if cell.stack == baseline], values),
        seeds=len(solved),
        seeds_left_out=len(by_seed) - len(solved),
        cells=len(whole),
        of=2 * math.prod(len(each) for each in values.values()),
    )


def _runs_by_seed(cells: Sequence[Cell]) -> dict[int, list[Timed]]:
    found: dict[int, list[Timed]] = {}
    for cell in cells:
        for record in filter(_has_time, cell.records):
            found.setdefault(record.specification.work.seed, []).append((cell, record))
    return found


def _values(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """The values of every factor, in the order of the matrix, as JSON; an axis with one value is none."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for name, value in cell.settings.items():
            values = found.setdefault(name, [])
            values += [] if _text(value) in values else [_text(value)]
    return {name: values for name, values in found.items() if len(values) > 1}


def _mixed(cells: Sequence[Cell], values: Mapping[str, list[str]]) -> dict[str, list[tuple[str, str]]]:
    """The pairs of factors whose interaction these cells can't tell from the cost of a third one.

    Of factors with two values: in a fraction of low resolution their product is the third one's column.
    """
    columns = {
        name: [1 if _text(cell.axes[name]) == found[0] else -1 for cell in cells]
        for name, found in values.items()
        if len(found) == 2
    }
    columns = {name: column for name, column in columns.items() if len({*column}) == 2}
    mixed: dict[str, list[tuple[str, str]]] = {}
    for one, other in itertools.combinations(columns, 2):
        product = [a * b for a, b in zip(columns[one], columns[other], strict=True)]
        for name in columns.keys() - {one, other}:
            if columns[name] in (product, [-each for each in product]):
                mixed.setdefault(name, []).append((one, other))
    return {name: mixed[name] for name in columns if name in mixed}


def _has_only(values: Mapping[str, list[str]], runs: Sequence[Timed]) -> bool:
    """Whether runs have no other values of the factors."""
    return all(_text(cell.axes[name]) in known for cell, _ in runs for name, known in values.items())


def _held(cell: Cell, terms: Sequence[Term], other: str) -> frozenset[Term]:
    """Those of the terms that hold for a cell's runs."""
    return frozenset(
        term
        for term in terms
        if (not term.stack or cell.stack == other)
        and (not term.factor or _text(cell.axes[term.factor]) == term.value)
    )


def _estimable(terms: Sequence[Term], held: Sequence[frozenset[Term]]) -> tuple[list[Term], list[Term]]:
    """Those that runs with these terms tell apart, an earlier term before a later one, and the others."""
    kept: list[Term] = []
    lost = []
    for term in terms:
        if tell_apart(held, [*kept, term]):
            kept.append(term)
        else:
            lost.append(term)
    return kept, lost


def _times(record: Record) -> dict[Measure, float]:
    work = record.specification.work
    in_steps_s = None
    # The test split is evaluated outside of all epochs, and a program with its own loop names what it likes.
    if record.phases is not None and record.epochs and not (work.data.test or work.data.has_own_loop):
        in_steps_s = sum(epoch.seconds for epoch in record.epochs) - record.phases["evaluation"]
    found = times_of(record.train_s or 0.0, work.steps, in_steps_s, record.total_s)
    own = own_ms(record)
    return found if own is None else {**found, "step_ms": own}


def _has_own_clock(cell: Cell) -> bool:
    """Whether the runs of a cell measure their steps themselves."""
    return any(own_ms(record) is not None for record in cell.records)


def _words(term: Term, meant: Mapping[str, Any], baseline: str, other: str) -> str:
    stack = other if term.stack else baseline
    return f"{term.factor} {meant[term.value]} on {stack}" if term.factor else f"{stack} itself"


def _has_time(record: Record) -> bool:
    return record.train_s is not None and record.timed and not record.among_users


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
