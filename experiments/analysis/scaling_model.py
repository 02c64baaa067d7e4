"""A small model of a step's time, and how well it predicts cells that it was not fitted to.

A step takes something whatever it computes, and more for each operation of its matrix products, attention
weight, parameter, byte that a rank sends, round of messages, and for the time that its bytes are on a link of
limited rate. Least squares find the costs, none of them below zero (NNLS), and errors count relative to a
cell's time, so that short steps count as much as long ones. Nothing else is known of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from experiments.analysis.statistics import EXACT, LEVEL

Term = Literal["fixed", "flop", "attention", "parameters", "bytes", "rounds", "link"]
TERMS: Final[tuple[Term, ...]] = ("fixed", "flop", "attention", "parameters", "bytes", "rounds", "link")
Amounts = Mapping[Term, float]
"""How much of each term a step has: 1, 10^9 operations, 10^6 attention weights, 10^6 parameters, MB of 2^20
bytes that a rank sends, rounds of messages, and the ms that these bytes take at the link's rate."""

APART: Final = 0.01  # smallest singular value over the largest, of columns of length 1, that are told apart
SPARE: Final = 2  # cells beyond the terms: one to hold out, and one that says how far off the others are

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval, which holds with all others of its kind (Bonferroni)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class HeldOut:
    """Errors of predictions of cells by the others, as fractions of the cells' times."""

    median: float
    worst: float
    cells: int  # of which each was held out in turn; those without which a term can't be told are left out


@dataclass(frozen=True)
class TooFew:
    """There are too few cells for the terms that they tell apart."""

    cells: int
    terms: int


@dataclass(frozen=True, eq=False)
class ScalingModel:
    """What a step costs, in ms for each unit of a term."""

    costs: dict[Term, Interval]
    lost: list[Term]  # that the cells can't tell from those before them, of which they are a part
    absent: list[Term]  # that no cell has any of
    held_out: HeldOut | None  # None: without any one cell, the others don't tell all terms apart
    cells: int
    error: float  # standard deviation of a cell's time about the model, as a fraction of it
    _covariance: Matrix  # [terms, terms] of `costs`
    _in_others: Matrix  # [terms, lost]: how much of each cost a unit of a lost term has, in these cells
    _looks: int

    def step_ms(self, amounts: Amounts) -> float:
        """What such a step takes by the model."""
        return sum(cost.value * amounts[term] for term, cost in self.costs.items())

    def determines(self, amounts: Amounts) -> bool:
        """Whether the cells tell what such a step takes.

        It must have none of what they lack, and of a lost term just what goes with the others.
        """
        if any(amounts[term] for term in self.absent):
            return False
        has = np.array([amounts[term] for term in self.costs])
        goes = has @ self._in_others
        return all(
            math.isclose(amounts[term], expected, rel_tol=APART, abs_tol=EXACT)
            for term, expected in zip(self.lost, goes, strict=True)
        )

    def predictions(self, steps: Sequence[Amounts]) -> list[Interval]:
        """What each of these steps takes in a cell of its own, in ms; the intervals hold all at once."""
        if not steps:
            return []
        times = _quantile(self.cells - len(self.costs), self._looks * len(steps))
        found = []
        for amounts in steps:
            has = np.array([amounts[term] for term in self.costs])
            value = self.step_ms(amounts)
            half = times * float(np.sqrt(has @ self._covariance @ has + (self.error * value) ** 2))
            found.append(Interval(value, max(0.0, value - half), value + half))
        return found


def fit(cells: Sequence[tuple[Amounts, float]], looks: int = 1) -> ScalingModel | TooFew:
    """The model of steps that take so many milliseconds.

    A term is left out where the cells can't tell it from those before it. The intervals are those of least
    squares; that of a cost which is held at zero begins there.

    Args:
        cells: what a step of each has, and the ms that it takes.
        looks: at how many moments this is looked at (`statistics.simultaneous`).
    """
    every: Matrix = np.array([[amounts[term] for term in TERMS] for amounts, _ in cells], dtype=np.float64)
    ms = np.array([each for _, each in cells])
    relative = every / ms[:, None]  # [cells, terms]: each cell is to come to 1
    there = [at for at in range(len(TERMS)) if every[:, at].any()]
    kept = list[int]()
    for at in there:
        if _rank(relative[:, [*kept, at]]) == len(kept) + 1:
            kept.append(at)
    if len(cells) < len(kept) + SPARE:
        return TooFew(len(cells), len(kept))
    design = relative[:, kept]
    costs = _solve(design)
    freedom = len(cells) - len(kept)
    variance = float(np.sum((design @ costs - 1) ** 2)) / freedom
    covariance = variance * np.linalg.inv(design.T @ design)
    halves = _quantile(freedom, looks * len(kept)) * np.sqrt(np.diag(covariance))
    lost = [at for at in there if at not in kept]
    in_others: Matrix = np.asarray(np.linalg.lstsq(every[:, kept], every[:, lost])[0], dtype=np.float64)
    return ScalingModel(
        costs={
            TERMS[at]: Interval(float(cost), max(0.0, float(cost - half)), float(cost + half))
            for at, cost, half in zip(kept, costs, halves, strict=True)
        },
        lost=[TERMS[at] for at in lost],
        absent=[term for at, term in enumerate(TERMS) if at not in there],
        held_out=_held_out(design),
        cells=len(cells),
        error=variance**0.5,
        _covariance=covariance,
        _in_others=in_others,
        _looks=looks,
    )


def _solve(design: Matrix) -> Matrix:
    """The costs, none below zero, with which each row comes to 1 as nearly as can be."""
    lengths = np.linalg.norm(design, axis=0)  # units differ by orders of magnitude
    found: Matrix = optimize.nnls(design / lengths, np.ones(len(design)))[0] / lengths
    return found


def _held_out(design: Matrix) -> HeldOut | None:
    """Each cell by a fit to the others; None if these never tell all terms apart."""
    errors = []
    for at in range(len(design)):
        others = np.delete(design, at, axis=0)
        if _rank(others) == design.shape[1]:
            errors.append(abs(float(design[at] @ _solve(others)) - 1))
    return HeldOut(median(errors), max(errors), len(errors)) if errors else None


def _rank(columns: Matrix) -> int:
    """How many of the columns the rows tell apart."""
    lengths = np.linalg.norm(columns, axis=0)
    return int(np.linalg.matrix_rank(columns / np.where(lengths, lengths, 1), rtol=APART))


def _quantile(freedom: int, number: int) -> float:
    """Student's, of one of `number` two-sided intervals that hold at once."""
    return float(stats.t.ppf(1 - (1 - LEVEL) / 2 / number, freedom))
