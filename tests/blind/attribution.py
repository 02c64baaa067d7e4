"""Which factor makes one launch slower than another: numbers only, from the times of runs.

It is told nothing of the launches but which factors were equalised in which run. Runs are made in blocks. In
each block the factors are equalised in half of the runs each, by the design of Plackett and Burman, so that
every run counts for every factor. Least squares over all runs give what each factor costs; each block has a
level of its own. Costs are taken to add up, and runs to vary alike: as each factor is equalised in half of
the runs, its cost has the right error also where runs with a fault vary more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from experiments.analysis.statistics import EXACT, Difference, differences_together, simultaneous

UNEXPLAINED: Final = "unexplained"
MEASURES: Final = ("step_ms", "fixed_s", "launch_s")
_GENERATORS: Final = {
    3: (1, 1, 0),
    7: (1, 1, 1, 0, 1, 0, 0),
    11: (1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0),
}
"""The first row of each design of Plackett and Burman by its columns; the others are the same, shifted."""


@dataclass(frozen=True)
class Run:
    """The times of one run."""

    block: int
    other: bool  # False: of the plain launch
    equalised: frozenset[str]  # factors with the plain launch's value
    times: Mapping[str, float]  # by measure


@dataclass(frozen=True)
class Cause:
    """What one factor, or what no factor covers, adds to a measure of the other launch."""

    name: str
    measure: str
    cost: Difference  # `floor` is the noise floor

    @property
    def share(self) -> float:
        """The cost in noise floors."""
        return self.cost.mean / self._floor

    @property
    def claimed(self) -> bool:
        """Whether its interval is above zero, and it is more than the noise floor."""
        return self.cost.low is not None and self.cost.low > 0 and self.share > 1

    def holds(self, size: float, within: float = 0.0) -> bool:
        """Whether the interval holds a size; widened by how well the size itself is known, `within`."""
        assert self.cost.high is not None  # `attribute` has seen to it
        return abs(size - self.cost.mean) <= math.hypot(self.cost.high - self.cost.mean, within)

    @property
    def _floor(self) -> float:
        assert self.cost.floor is not None
        return self.cost.floor


@dataclass(frozen=True)
class Attribution:
    """Every cause in every measure, the largest claimed one first."""

    causes: list[Cause]

    @property
    def named(self) -> Cause | None:
        """The cause that is named; None if nothing can be claimed."""
        return self.causes[0] if self.causes[0].claimed else None


def screening(factors: Sequence[str]) -> list[frozenset[str]]:
    """Which factors to equalise in each run of the smallest design that tells them apart; in the last, none.

    Raises:
        ValueError: there are more factors than the largest design has columns.
    """
    columns = next((size for size in (3, 7, 11) if len(factors) <= size), None)
    if columns is None:
        raise ValueError(f"There are {len(factors)} factors, and 12 runs tell 11 apart; leave some out.")
    pattern = _GENERATORS[columns]
    rows = [
        frozenset(name for at, name in enumerate(factors) if pattern[(at - shift) % columns])
        for shift in range(columns)
    ]
    return [*rows, frozenset()]


def noise_floors(runs: Sequence[Run]) -> dict[str, float]:
    """The noise floor of each measure: the interval's farther end from zero, of plain runs made twice.

    Raises:
        ValueError: there are fewer than two blocks with two plain runs, or their times don't vary.
    """
    pairs = [
        (plain[0].times, plain[1].times)
        for block in _blocks(runs)
        if len(plain := [run for run in block if not run.other]) > 1
    ]
    if len(pairs) < 2:
        raise ValueError("An A/A test needs two plain runs in each of two blocks; make more.")
    found = simultaneous([[again[name] - first[name] for first, again in pairs] for name in MEASURES])
    floors = {}
    for name, each in zip(MEASURES, found, strict=True):
        if each.low is None or each.high is None:
            raise ValueError(
                f"Plain runs made twice don't differ in {name}, as no real times do; look at them."
            )
        floors[name] = max(abs(each.low), abs(each.high))
    return floors


def attribute(runs: Sequence[Run], factors: Sequence[str], floors: Mapping[str, float]) -> Attribution:
    """What each factor adds to the other launch, and what is left when all of them are equalised.

    Args:
        runs: of each block: two of the plain launch, and of the other one those of `screening` and at least
            one with all factors equalised.
        factors: the names of all.
        floors: the noise floor of each measure; nothing smaller is claimed.

    Raises:
        ValueError: a block lacks runs, or their times don't vary.
    """
    for block in _blocks(runs):
        _check(block, factors)
    labels = [(measure, name) for measure in MEASURES for name in (UNEXPLAINED, *factors)]
    costs = differences_together([cost for measure in MEASURES for cost in _costs(runs, factors, measure)])
    causes = [
        Cause(name, measure, replace(cost, floor=floors[measure]))
        for (measure, name), cost in zip(labels, costs, strict=True)
    ]
    return Attribution(sorted(causes, key=lambda cause: (cause.claimed, cause.share), reverse=True))


def _blocks(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs of each block, in the order in which they are given."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        found.setdefault(run.block, []).append(run)
    return list(found.values())


def _check(block: Sequence[Run], factors: Sequence[str]) -> None:
    """Refuse a block that lacks runs: every one of them counts.

    Raises:
        ValueError: it does.
    """
    made = Counter(run.equalised if run.other else None for run in block)
    needed = Counter([None, None, *screening(factors), frozenset(factors)])
    if lacking := (needed - made).total():
        raise ValueError(
            f"Block {block[0].block} lacks {lacking} of the {needed.total()} runs that tell the factors "
            "apart; make them."
        )


def _costs(runs: Sequence[Run], factors: Sequence[str], measure: str) -> list[Difference]:
    """What is unexplained and what each factor costs, with standard errors, as yet without intervals.

    Raises:
        ValueError: times don't vary.
    """
    blocks = list(dict.fromkeys(run.block for run in runs))
    # [runs, blocks + 1 + factors]: the levels of the blocks, the other launch itself, factors not equalised
    design = np.array(
        [
            [
                *(float(run.block == block) for block in blocks),
                float(run.other),
                *(float(run.other and name not in run.equalised) for name in factors),
            ]
            for run in runs
        ]
    )
    times = np.array([run.times[measure] for run in runs])
    solution = np.linalg.lstsq(design, times)[0]
    freedom = len(runs) - design.shape[1]
    variance = float(np.sum((times - design @ solution) ** 2)) / freedom
    if math.sqrt(variance) <= EXACT:
        raise ValueError(f"The runs don't vary in {measure}, as real times do; look at them.")
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * variance)
    # `differences_together` gives the intervals: of all that have a p, and as of n pairs, with n - 1 degrees
    # of freedom.
    return [
        Difference(float(mean), None, None, 1.0, None, float(error), freedom + 1)
        for mean, error in zip(solution[len(blocks) :], errors[len(blocks) :], strict=True)
    ]
