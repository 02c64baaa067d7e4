"""What each factor costs on each stack, and whether one stack pays more for it than the baseline.

Two recipes, which differ in their stack and in how they are launched and fed, can only differ in time because
of the stack itself, because a factor costs something on any stack, or because it costs more on one of them:
the interaction of stack and factor. Only the first and the last can explain a ratio between stacks.

The runs of one seed are one replicate of the design. Least squares (reference coding, from the first value of
each axis) give every effect once for each seed, and the effects have Student's intervals over the seeds. With
a full factorial design the effects are plain differences of means; a fraction of one will do, as long as no
effect is the sum of others: those are named, and left out. A factor is taken not to change the effect of
another one on the same stack.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from experiments.analysis.figures import REPETITION, Cell, Figures
from experiments.analysis.statistics import Difference, simultaneous
from experiments.records.record import Record

MS: Final = 1000.0
Run = tuple[Cell, float]
"""A run's cell, and its seconds of train_s a step."""


@dataclass(frozen=True)
class FactorEffect:
    """A factor's value against its first one, in ms of train_s a step."""

    factor: str
    value: Any
    first: Any
    on_baseline: Difference
    on_other: Difference
    more_on_other: Difference  # the interaction


@dataclass(frozen=True)
class Recipes:
    """A stack against the baseline, with as many workers and epochs, over the factors of the matrix."""

    baseline: str
    other: str
    workers: int
    epochs: int
    stack_alone: Difference  # with every factor at its first value, in ms of train_s a step
    effects: list[FactorEffect]
    confounded: list[str]  # what the runs can't tell apart, in words
    seeds_left_out: int  # that lack runs, or have other cells than most
    cells: int  # of the design
    of: int  # cells of the full factorial

    @property
    def differences(self) -> list[Difference]:
        """All that is claimed together."""
        each = [(found.on_baseline, found.on_other, found.more_on_other) for found in self.effects]
        return [self.stack_alone, *(difference for three in each for difference in three)]


@dataclass(frozen=True)
class _Term:
    """A column of the design: 1 in the runs of the other stack (`stack`), with this value of a factor."""

    stack: bool
    factor: str = ""
    value: str = ""  # as JSON

    def holds(self, cell: Cell, other: str) -> bool:
        """Whether it is 1 in a cell's runs."""
        return (not self.stack or cell.stack == other) and (
            not self.factor or _text(cell.axes[self.factor]) == self.value
        )


def recipes(figures: Figures, floor: float | None = None) -> list[Recipes]:
    """Every stack against the baseline, where the matrix crosses stacks with further axes; else nothing.

    `floor` is the noise floor, as a fraction of train_s: of the baseline's step with the first values.
    """
    baseline = figures.campaign.baseline
    groups: dict[tuple[int, int], list[Cell]] = {}
    for cell in figures.cells:
        if REPETITION in cell.settings:
            continue
        groups.setdefault((cell.workers, cell.epochs), []).append(cell)
    return [
        found
        for cells in groups.values()
        for other in dict.fromkeys(cell.stack for cell in cells if cell.stack != baseline)
        if (found := _recipes(cells, baseline, other, floor, figures.campaign.looks)) is not None
    ]


def _recipes(
    cells: Sequence[Cell], baseline: str, other: str, floor: float | None, looks: int
) -> Recipes | None:
    """Two stacks over the factors of these cells; None if there are none, or too few runs."""
    by_seed = _runs_by_seed([cell for cell in cells if cell.stack in (baseline, other)])
    whole = [cell for cell, _ in max(by_seed.values(), key=len, default=[])]
    values = _values(whole)
    # A seed with other values would be counted among the first ones.
    known = {seed: runs for seed, runs in by_seed.items() if _has_only(values, runs)}
    levels = [(name, value) for name, found in values.items() for value in found[1:]]
    terms = [_Term(True), *(_Term(False, *each) for each in levels), *(_Term(True, *each) for each in levels)]
    kept, lost = _estimable(terms, whole, other)
    solved = [each for runs in known.values() if (each := _solve(kept, runs, other)) is not None]
    if not levels or terms[0] not in kept or not solved:
        return None
    # [terms, seeds], without the constant
    found = dict(zip(kept, (np.array(solved).T[1:] * MS).tolist(), strict=True))
    told_apart = [each for each in levels if {_Term(False, *each), _Term(True, *each)} <= found.keys()]
    samples = [found[terms[0]]]
    for level in told_apart:
        alone, more = found[_Term(False, *level)], found[_Term(True, *level)]
        samples += [alone, [a + b for a, b in zip(alone, more, strict=True)], more]
    first = {name: found[0] for name, found in values.items()}
    usual = [
        seconds
        for runs in known.values()
        for cell, seconds in runs
        if cell.stack == baseline and all(_text(cell.axes[name]) == value for name, value in first.items())
    ]
    floor_ms = floor * float(np.mean(usual)) * MS if floor is not None and usual else None
    together = [replace(each, floor=floor_ms) for each in simultaneous(samples, looks)]
    return Recipes(
        baseline=baseline,
        other=other,
        workers=cells[0].workers,
        epochs=cells[0].epochs,
        stack_alone=together[0],
        effects=[
            FactorEffect(name, json.loads(value), json.loads(values[name][0]), *three)
            for (name, value), *three in zip(
                told_apart, together[1::3], together[2::3], together[3::3], strict=True
            )
        ],
        confounded=[_words(term, baseline, other) for term in lost],
        seeds_left_out=len(by_seed) - len(solved),
        cells=len(whole),
        of=2 * math.prod(len(each) for each in values.values()),
    )


def _runs_by_seed(cells: Sequence[Cell]) -> dict[int, list[Run]]:
    found: dict[int, list[Run]] = {}
    for cell in cells:
        for record in filter(_has_time, cell.records):
            work = record.specification.work
            found.setdefault(work.seed, []).append((cell, (record.train_s or 0.0) / work.steps))
    return found


def _values(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """The values of every factor, in the order of the matrix, as JSON; an axis with one value is none."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for name, value in cell.settings.items():
            values = found.setdefault(name, [])
            values += [] if _text(value) in values else [_text(value)]
    return {name: values for name, values in found.items() if len(values) > 1}


def _has_only(values: dict[str, list[str]], runs: Sequence[Run]) -> bool:
    """Whether runs have no other values of the factors."""
    return all(_text(cell.axes[name]) in known for cell, _ in runs for name, known in values.items())


def _matrix(terms: Sequence[_Term], cells: Sequence[Cell], other: str) -> npt.NDArray[np.float64]:
    """The design [runs, 1 + terms]; the first column is the constant."""
    return np.array([[1.0, *(float(term.holds(cell, other)) for term in terms)] for cell in cells])


def _estimable(terms: Sequence[_Term], cells: Sequence[Cell], other: str) -> tuple[list[_Term], list[_Term]]:
    """Those that these cells tell apart, an earlier term before a later one, and the others."""
    kept: list[_Term] = []
    lost = []
    for term in terms:
        tried = [*kept, term]
        if cells and np.linalg.matrix_rank(_matrix(tried, cells, other)) == len(tried) + 1:
            kept = tried
        else:
            lost.append(term)
    return kept, lost


def _solve(terms: Sequence[_Term], runs: Sequence[Run], other: str) -> npt.NDArray[np.float64] | None:
    """The constant and the terms' coefficients, in seconds a step; None if a seed's runs are too few."""
    design = _matrix(terms, [cell for cell, _ in runs], other)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    solution: npt.NDArray[np.float64] = np.linalg.lstsq(design, np.array([seconds for _, seconds in runs]))[0]
    return solution


def _words(term: _Term, baseline: str, other: str) -> str:
    stack = other if term.stack else baseline
    return f"{term.factor} {json.loads(term.value)} on {stack}" if term.factor else f"{stack} itself"


def _has_time(record: Record) -> bool:
    return record.train_s is not None and record.timed and not record.among_users


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
