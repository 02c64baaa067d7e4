"""The statistics of the report: intervals, paired ratios, equivalence, and what the runs could have detected.

Times are compared as ratios, so their logarithms are averaged: a stack that is twice as slow in one block and
twice as fast in another comes out even. Runs are paired within their block (the same seed), so a drift of the
machine cancels. With five or so pairs, Student's t is right if the logarithms are roughly normal, as those of
times of equal work are; a bootstrap of so few would give intervals that are too short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import linear_regression
from typing import Final

import numpy as np
from scipy import optimize, stats

LEVEL: Final = 0.95  # of intervals
MARGIN: Final = 0.03  # "no worse than 3 %"
POWER: Final = 0.8  # with which the smallest visible difference is detected
BEYOND: Final = 100  # a log ratio that no two times reach


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval; of a single value, the ends and sd are None."""

    mean: float
    low: float | None
    high: float | None
    sd: float | None
    n: int


@dataclass(frozen=True)
class Ratio:
    """A ratio of paired times, as a geometric mean; 1.1 = 10 % more."""

    ratio: float
    low: float | None  # ends of the 95 % interval; None with one pair
    high: float | None
    p: float | None  # of no difference, two-sided; None with one pair
    equivalent_p: float | None  # of a difference of MARGIN or more, either way (TOST); small = equivalent
    visible: float | None  # the smallest difference that this many pairs with this spread detect with POWER
    error: float | None  # standard error of the mean logarithm
    n: int


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences."""

    mean: float
    low: float | None  # ends of the 95 % interval; None with one pair
    high: float | None
    p: float | None  # of no difference, two-sided; None with one pair
    visible: float | None  # the smallest difference that this many pairs with this spread detect with POWER
    error: float | None  # standard error of the mean
    n: int


@dataclass(frozen=True)
class Split:
    """A time as a fixed part and a part for each step."""

    fixed_s: float
    fixed_half: float | None  # half the width of the 95 % interval; None with fewer than two lines
    step_s: float
    step_half: float | None
    n: int  # runs it is fitted to


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean of `values` with Student's interval; None without values."""
    if not values:
        return None
    mean, n = float(np.mean(values)), len(values)
    if n == 1:
        return Estimate(mean, None, None, None, 1)
    sd = float(np.std(values, ddof=1))
    half = _t(n - 1) * sd / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, sd, n)


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Ratio | None:
    """How many times as long the first of each pair took as the second; None without pairs.

    Raises:
        ValueError: a time is not above 0.
    """
    if not pairs:
        return None
    if any(time <= 0 for pair in pairs for time in pair):
        raise ValueError("Times to compare must be above 0.")
    logs = np.log([above / below for above, below in pairs])
    mean, n = float(np.mean(logs)), len(pairs)
    if n == 1:
        return Ratio(math.exp(mean), None, None, None, None, None, None, 1)
    error = float(np.std(logs, ddof=1)) / math.sqrt(n)
    half = _t(n - 1) * error
    return Ratio(
        ratio=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        p=_two_sided(mean, error, n - 1),
        equivalent_p=_tost(mean, error, n - 1, math.log1p(MARGIN)),
        visible=_visible_ratio(error, n, 1),
        error=error,
        n=n,
    )


def mean_difference(differences: Sequence[float]) -> Difference | None:
    """Mean of paired differences with Student's interval; None without pairs."""
    found = estimate(differences)
    if found is None:
        return None
    if found.sd is None:
        return Difference(found.mean, None, None, None, None, None, 1)
    error, freedom = found.sd / math.sqrt(found.n), found.n - 1
    return Difference(
        mean=found.mean,
        low=found.low,
        high=found.high,
        p=_two_sided(found.mean, error, freedom),
        visible=_detectable(freedom, 1) * error,
        error=error,
        n=found.n,
    )


def ratios_together(found: Sequence[Ratio]) -> list[Ratio]:
    """The same ratios, in the order given, corrected as comparisons made together.

    The p values are corrected by Holm's method, those of a difference separately from those of equivalence;
    `visible` becomes what one of so many tests detects at Bonferroni's level, whatever the others show.
    """
    number = sum(each.p is not None for each in found)
    corrected = zip(
        holm([each.p for each in found]), holm([each.equivalent_p for each in found]), strict=True
    )
    return [
        each
        if each.error is None
        else replace(each, p=p, equivalent_p=same, visible=_visible_ratio(each.error, each.n, number))
        for each, (p, same) in zip(found, corrected, strict=True)
    ]


def differences_together(found: Sequence[Difference]) -> list[Difference]:
    """The same for differences."""
    number = sum(each.p is not None for each in found)
    return [
        each
        if each.error is None
        else replace(each, p=p, visible=_detectable(each.n - 1, number) * each.error)
        for each, p in zip(found, holm([each.p for each in found]), strict=True)
    ]


def simultaneous(samples: Sequence[Sequence[float]], usual: float) -> list[Difference]:
    """The mean of each sample, with intervals that hold all at once (Bonferroni), and p corrected alike.

    An interval excludes 0 exactly if its p is below 1 - LEVEL. Of a single value, or of values that don't
    differ at all, there is neither: no measured time is exact, so values without spread say nothing of it.

    Args:
        samples: of each mean.
        usual: how large the values are that these are differences of, to tell a spread from rounding.

    Raises:
        ValueError: a sample is empty.
    """
    if not all(samples):
        raise ValueError("There is no mean of nothing.")
    number = max(1, sum(len(values) > 1 for values in samples))
    found = []
    for values in samples:
        mean, n = float(np.mean(values)), len(values)
        error = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else 0.0
        if error <= abs(usual) * 1e-12:
            found.append(Difference(mean, None, None, None, None, None, n))
            continue
        half = float(stats.t.ppf(1 - (1 - LEVEL) / 2 / number, n - 1)) * error
        p = min(1.0, number * _two_sided(mean, error, n - 1))
        found.append(
            Difference(mean, mean - half, mean + half, p, _detectable(n - 1, number) * error, error, n)
        )
    return found


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p values corrected for their number (Holm, 1979), in the order given; None stays and is not counted."""
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        corrected[index] = highest
    return corrected


def split(blocks: Mapping[int, Sequence[tuple[float, float]]]) -> Split | None:
    """Fixed part and part per step of times at different lengths; None without two lengths.

    Each block with every length gives a line, and the means over these lines have Student's intervals. One
    line through all runs has no valid interval: long runs vary more than short ones, and the runs of a block
    share its drift. With fewer than two complete blocks there is just that line, without an interval.

    Args:
        blocks: number of steps and seconds of each run, by seed.
    """
    points = [point for block in blocks.values() for point in block]
    lengths = {steps for steps, _ in points}
    if len(lengths) < 2:
        return None
    whole = [block for block in blocks.values() if {steps for steps, _ in block} == lengths]
    used = whole if len(whole) > 1 else [points]
    lines = [linear_regression(*zip(*block, strict=True)) for block in used]
    fixed, step = estimate([line.intercept for line in lines]), estimate([line.slope for line in lines])
    assert fixed is not None and step is not None  # there is at least one line
    return Split(fixed.mean, _half(fixed), step.mean, _half(step), sum(len(block) for block in used))


def _half(found: Estimate) -> float | None:
    return None if found.high is None else found.high - found.mean


def _t(freedom: int) -> float:
    return float(stats.t.ppf((1 + LEVEL) / 2, freedom))


def _two_sided(mean: float, error: float, freedom: int) -> float:
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stats.t.sf(abs(mean / error), freedom))


def _tost(mean: float, error: float, freedom: int, margin: float) -> float:
    """Two one-sided tests (Schuirmann, 1987): the larger of their p values."""
    if error == 0:
        return 0.0 if abs(mean) < margin else 1.0
    below = float(stats.t.sf((mean + margin) / error, freedom))
    above = float(stats.t.cdf((mean - margin) / error, freedom))
    return max(below, above)


def _visible_ratio(error: float, n: int, number: int) -> float:
    logarithm = _detectable(n - 1, number) * error
    return math.expm1(logarithm) if logarithm < BEYOND else math.inf


@cache
def _detectable(freedom: int, number: int) -> float:
    """The difference, in standard errors, that one of `number` two-sided tests detects (noncentral t)."""
    critical = float(stats.t.ppf(1 - (1 - LEVEL) / 2 / number, freedom))

    def lacking(shift: float) -> float:
        return POWER - float(stats.nct.sf(critical, freedom, shift))  # the other side's share is below 1e-3

    high = critical
    while lacking(high) > 0:
        high *= 1.5
    return float(optimize.brentq(lacking, 0.0, high))
