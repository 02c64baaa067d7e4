"""Which cause makes one stack slower than another: numbers only, by least squares over the times of runs.

It is told nothing of the runs but in which terms they differ: the stack, the values of factors, and what only
the other stack pays for a value. Runs are made in blocks, and each block has a level of its own. Reports use
it for factors that are crossed with stacks, and the blind test (docs/why/hidden-causes.md) judges it.

Costs are taken to add up. What their error comes from depends on how many blocks there are:

- With at least `FEWEST`, every block gives each cost once, and the costs have Student's intervals over the
  blocks. Nothing is assumed of how runs vary.
- With fewer, the error is what one fit to all runs leaves over, for each of the two stacks by itself. That
  takes the runs of a stack to vary alike, and independently.

With the same runs in every block both give the same costs; where all values are crossed, those are plain
differences of means. With a single block, or where nothing is left over, there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from experiments.analysis.statistics import EXACT, Difference, differences_together, simultaneous

Measure = Literal["step_ms", "fixed_s", "launch_s"]
MEASURES: Final[tuple[Measure, ...]] = ("step_ms", "fixed_s", "launch_s")
MS: Final = 1000.0
NO_SHARE: Final = 1e-9  # of a column of zeros and ones: what rounding leaves
FEWEST: Final = 5  # blocks whose spread says how sure a cost is
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """In which runs something may cost time: those of the other stack (`stack`), with a factor's value."""

    stack: bool
    factor: str = ""
    value: str = ""


Sum = tuple[Term, ...]
"""Terms whose costs are added up, as what a value costs on the baseline and what the other pays more."""

UNEXPLAINED: Final = Term(True)
"""The other stack itself: what it costs with every factor as the baseline has it first."""


@dataclass(frozen=True)
class Run:
    """The times of one run."""

    block: int  # the seed, in reports
    other: bool  # False: of the baseline
    terms: frozenset[Term]  # that hold for it
    times: Mapping[Measure, float]


@dataclass(frozen=True)
class Cause:
    """What one term adds to a measure of the other stack."""

    term: Term
    measure: Measure
    cost: Difference  # `floor` is the noise floor; None = not measured

    @property
    def share(self) -> float | None:
        """The cost in noise floors; None if there is no floor."""
        return self.cost.mean / self.cost.floor if self.cost.floor else None

    @property
    def claimed(self) -> bool:
        """Whether its interval is above zero, and it is more than the noise floor."""
        return self.cost.low is not None and self.cost.low > 0 and (self.share or 0.0) > 1

    def holds(self, size: float, within: float = 0.0) -> bool:
        """Whether the interval holds a size; widened by how well the size itself is known, `within`."""
        if self.cost.high is None:
            return False
        return abs(size - self.cost.mean) <= math.hypot(self.cost.high - self.cost.mean, within)


@dataclass(frozen=True)
class Attribution:
    """What each sum of terms costs in each measure; the intervals of a measure hold all at once."""

    costs: Mapping[Measure, Mapping[Sum, Difference]]

    @property
    def causes(self) -> list[Cause]:
        """What can make the other stack slower, in every measure, the largest claimed one first."""
        found = [
            Cause(terms[0], measure, cost)
            for measure, costs in self.costs.items()
            for terms, cost in costs.items()
            if len(terms) == 1 and terms[0].stack
        ]
        return sorted(found, key=lambda each: (each.claimed, each.share or -math.inf), reverse=True)

    @property
    def named(self) -> Cause | None:
        """The cause that is named; None if nothing can be claimed."""
        first = next(iter(self.causes), None)
        return first if first is not None and first.claimed else None


def times_of(
    train_s: float, steps: int, in_steps_s: float | None, total_s: float | None
) -> dict[Measure, float]:
    """A run's times by measure, without those for which a time is not known (None).

    `step_ms` is train_s a step, all of it spread over the steps; `fixed_s` is how much of train_s is beyond
    the steps; `launch_s` is all that is outside train_s.

    Args:
        train_s: seconds inside the training function.
        steps: how many steps were taken.
        in_steps_s: how much of train_s they took.
        total_s: seconds of the whole run.
    """
    found: dict[Measure, float] = {"step_ms": train_s / steps * MS}
    if in_steps_s is not None:
        found["fixed_s"] = train_s - in_steps_s
    if total_s is not None:
        found["launch_s"] = total_s - train_s
    return found


def noise_floors(
    twice: Sequence[tuple[Mapping[Measure, float], Mapping[Measure, float]]], looks: int = 1
) -> dict[Measure, float]:
    """The noise floor of each measure: the interval's farther end from zero, of runs made twice.

    A measure that a run lacks, or that doesn't vary, has none: no real time is exact.
    """
    shared = [name for name in MEASURES if twice and all(name in times for pair in twice for times in pair)]
    found = simultaneous([[again[name] - first[name] for first, again in twice] for name in shared], looks)
    return {
        name: max(abs(each.low), abs(each.high))
        for name, each in zip(shared, found, strict=True)
        if each.low is not None and each.high is not None
    }


def attribute(
    runs: Sequence[Run],
    terms: Sequence[Term],
    sums: Sequence[Sum],
    floors: Mapping[Measure, float],
    looks: int = 1,
) -> Attribution:
    """What each of these sums costs, in each measure that all runs have.

    Args:
        runs: those of each block tell all terms apart.
        terms: all that may cost something.
        sums: of one of these terms or more.
        floors: the noise floor of each measure, where there is one; nothing smaller is claimed.
        looks: how often intervals are looked at while runs are added.

    Raises:
        ValueError: the runs of a block don't tell the terms apart.
    """
    shared = [name for name in MEASURES if all(name in run.times for run in runs)]
    costs: dict[Measure, Mapping[Sum, Difference]] = {}
    for measure in shared:
        found = _costs(runs, terms, sums, measure, looks)
        floor = floors.get(measure)
        costs[measure] = {each: replace(cost, floor=floor) for each, cost in zip(sums, found, strict=True)}
    return Attribution(costs)


def tell_apart(held: Sequence[frozenset[Term]], terms: Sequence[Term]) -> bool:
    """Whether runs for which these terms hold tell the terms apart, and from a level of all runs."""
    design = _design(held, terms)
    return bool(held) and int(np.linalg.matrix_rank(design)) == len(terms) + 1


def including(held: Sequence[frozenset[Term]], terms: Sequence[Term], other: Term) -> frozenset[Term]:
    """Those of the terms, which these runs tell apart, whose costs include what another one takes.

    In these runs the other one is a sum of terms, some of them taken off.
    """
    if not held:
        return frozenset()
    # [1 + terms]
    shares = np.linalg.lstsq(_design(held, terms), _design(held, [other])[:, 1])[0]
    return frozenset(term for term, share in zip(terms, shares[1:], strict=True) if abs(share) > NO_SHARE)


def by_blocks(blocks: int) -> bool:
    """Whether so many blocks are enough for intervals over the blocks."""
    return blocks >= FEWEST


def _costs(
    runs: Sequence[Run], terms: Sequence[Term], sums: Sequence[Sum], measure: Measure, looks: int
) -> list[Difference]:
    blocks: dict[int, list[Run]] = {}
    for run in runs:
        blocks.setdefault(run.block, []).append(run)
    for block, found in blocks.items():
        if not tell_apart([run.terms for run in found], terms):
            raise ValueError(f"The runs of block {block} don't tell the terms apart; make those it lacks.")
    # [sums, terms]
    added = np.array([[float(term in each) for term in terms] for each in sums])
    if by_blocks(len(blocks)) or len(blocks) == 1:
        # [sums, blocks]
        each = np.array([added @ _solved(found, terms, measure) for found in blocks.values()]).T
        return simultaneous(each.tolist(), looks)
    left = _by_what_is_left(list(blocks.values()), terms, added, measure)
    return [replace(cost, n=len(blocks)) for cost in differences_together(left, looks)]


def _design(held: Sequence[frozenset[Term]], terms: Sequence[Term]) -> Matrix:
    """[runs, 1 + terms]; the first column is the level."""
    return np.array([[1.0, *(float(term in each) for term in terms)] for each in held])


def _solved(runs: Sequence[Run], terms: Sequence[Term], measure: Measure) -> Matrix:
    """What each term costs in the runs of one block."""
    solution: Matrix = np.linalg.lstsq(
        _design([run.terms for run in runs], terms), np.array([run.times[measure] for run in runs])
    )[0]
    return solution[1:]


def _by_what_is_left(
    blocks: Sequence[Sequence[Run]], terms: Sequence[Term], added: Matrix, measure: Measure
) -> list[Difference]:
    """What sums cost by one fit, with standard errors, as yet without intervals.

    Each stack has a variance of its own; the degrees of freedom are Welch and Satterthwaite's, rounded down.
    """
    runs = [run for block in blocks for run in block]
    # [runs, blocks]
    levels = np.repeat(np.eye(len(blocks)), [len(block) for block in blocks], axis=0)
    design = np.hstack([levels, _design([run.terms for run in runs], terms)[:, 1:]])
    times = np.array([run.times[measure] for run in runs])
    inverse = np.linalg.pinv(design)
    left = times - design @ (inverse @ times)
    free = 1 - np.einsum("ij,ji->i", design, inverse)
    weights = added @ inverse[len(blocks) :]  # [sums, runs]
    of_other = np.array([run.other for run in runs])
    means = weights @ times
    squares, freedom = np.zeros(len(added)), np.zeros(len(added))
    for mine in (of_other, ~of_other):
        own = float(free[mine].sum())
        square = (weights[:, mine] ** 2).sum(axis=1)
        if own < EXACT:  # nothing is left over of a stack: only what does not depend on it has an error
            squares = np.where(square > EXACT, np.nan, squares)
            continue
        square *= float((left[mine] ** 2).sum()) / own
        squares, freedom = squares + square, freedom + square**2 / own
    found = []
    for mean, square, inverse_freedom in zip(means, squares, freedom, strict=True):
        degrees = int(square**2 / inverse_freedom) if square > EXACT**2 else 0
        if degrees < 1:
            found.append(Difference(float(mean), None, None, None, None, None, 1))
            continue
        # `differences_together` gives the intervals: of all that have a p, and as of n pairs, with n - 1
        # degrees of freedom.
        error = math.sqrt(square)
        found.append(Difference(float(mean), None, None, 1.0, None, error, degrees + 1))
    return found
