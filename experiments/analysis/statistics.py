"""The statistics of the report: intervals, paired ratios, equivalence, and what the runs could have detected.

Times are compared as ratios, so their logarithms are averaged: a stack that is twice as slow in one block and
twice as fast in another comes out even. Runs are paired within their block (the same seed), so a drift of the
machine cancels. With five or so pairs, Student's t is right if the logarithms are roughly normal, as those of
times of equal work are; a bootstrap of so few would give intervals that are too short.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import linear_regression
from typing import Final

import numpy as np
from scipy import optimize, stats

LEVEL: Final = 0.95  # of intervals, and of all that are made together
MARGIN: Final = 0.03  # "no worse than 3 %"
POWER: Final = 0.8  # with which the smallest visible difference is detected
BEYOND: Final = 100  # a log ratio that no two times reach
FEWEST: Final = 5  # runs that bound a median well enough: all of four lie above it once in 16 times
_TAILS: Final = ((1 + LEVEL) / 2, (1 - LEVEL) / 2)
EXACT: Final = 1e-9  # a spread that no clock can tell from none, in seconds, milliseconds or log ratios


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
    """A ratio of paired times, as a geometric mean; 1.1 = 10 % more.

    Its interval excludes 1 exactly if p is below 1 - LEVEL. With one pair, or with pairs that don't differ at
    all, there is no interval: no measured time is exact, so pairs without spread say nothing of theirs.
    """

    ratio: float
    low: float | None  # ends of the 95 % interval
    high: float | None
    p: float | None  # of no difference, two-sided
    visible: float | None  # the smallest difference that this many pairs with this spread detect with POWER
    error: float | None  # standard error of the mean logarithm
    n: int
    floor: float | None = None  # the noise floor, as a fraction: no smaller difference is claimed

    @property
    def visible_ends(self) -> tuple[float, float] | None:
        """The 95 % interval of `visible`, whose spread comes from a few pairs itself; None without it."""
        if self.visible is None:
            return None
        low, high = (math.log1p(self.visible) * factor for factor in _spread_factors(self.n - 1))
        return _exp(low) - 1, _exp(high) - 1


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences; it has an interval where a `Ratio` has one."""

    mean: float
    low: float | None  # ends of the 95 % interval
    high: float | None
    p: float | None  # of no difference, two-sided
    visible: float | None  # the smallest difference that this many pairs with this spread detect with POWER
    error: float | None  # standard error of the mean
    n: int
    floor: float | None = None  # the noise floor: no smaller difference is claimed

    @property
    def visible_ends(self) -> tuple[float, float] | None:
        """The 95 % interval of `visible`, whose spread comes from a few pairs itself; None without it."""
        if self.visible is None:
            return None
        low, high = (self.visible * factor for factor in _spread_factors(self.n - 1))
        return low, high


@dataclass(frozen=True)
class MedianTime:
    """The median of times to an event that some runs end without, in seconds (Kaplan and Meier).

    Without a median there is a restricted mean: each time counts only up to `within_s`.
    """

    median_s: float | None  # when half of the runs had reached it; None: fewer than half ever did
    low_s: float | None  # ends of the 95 % interval; None: open, as far as so few runs can tell
    high_s: float | None
    restricted_s: float | None  # None: there is a median, or no run reached it
    within_s: float | None  # the longest time that a run was watched
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


def median_time(reached: Sequence[float], censored: Sequence[float]) -> MedianTime | None:
    """The median time to an event, with its interval (Greenwood's, of log(-log)); None without times.

    Args:
        reached: seconds until it, of the runs that reached it.
        censored: seconds that the other runs were watched without it.
    """
    n = len(reached) + len(censored)
    if not n:
        return None
    ends = [False] * len(reached) + [True] * len(censored)
    waiting = stats.ecdf(stats.CensoredData.right_censored([*reached, *censored], ends)).sf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # there is no interval where none or all reached it
        around = waiting.confidence_interval(LEVEL, method="log-log")
    times, shares = waiting.quantiles, waiting.probabilities
    median = _first_half(times, shares)
    restricted, last = None, float(times[-1])
    if median is None and reached:
        restricted = float(np.dot(np.diff([0.0, *times]), [1.0, *shares[:-1]]))
    return MedianTime(
        median_s=median,
        low_s=_first_half(times, around.low.probabilities) if n >= FEWEST else None,
        high_s=_first_half(times, around.high.probabilities) if n >= FEWEST else None,
        restricted_s=restricted,
        within_s=last if restricted is not None else None,
        n=n,
    )


def _first_half(times: Sequence[float], shares: Sequence[float]) -> float | None:
    """The first of the times from which on no more than half are left; None if more are left to the end."""
    halves = (time for time, share in zip(times, shares, strict=True) if share <= 0.5 + EXACT)
    return next((float(time) for time in halves), None)


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
    return _as_ratio(_difference(logs.tolist()), 1)


def mean_difference(differences: Sequence[float]) -> Difference | None:
    """Mean of paired differences with Student's interval; None without pairs."""
    return _together(_difference(differences), 1) if differences else None


def ratios_together(found: Sequence[Ratio], looks: int = 1) -> list[Ratio]:
    """The same ratios, in the order given, with intervals that hold all at once (Bonferroni).

    p is corrected alike, and `visible` becomes what one of so many detects. With several `looks` at a growing
    number of pairs they hold at each of them.
    """
    number = looks * sum(each.p is not None for each in found)
    if number < 2:
        return list(found)
    return [
        _as_ratio(Difference(math.log(each.ratio), None, None, None, None, each.error, each.n), number)
        for each in found
    ]


def differences_together(found: Sequence[Difference], looks: int = 1) -> list[Difference]:
    """The same for differences."""
    number = looks * sum(each.p is not None for each in found)
    return [_together(each, number) for each in found]


def simultaneous(samples: Sequence[Sequence[float]], looks: int = 1) -> list[Difference]:
    """The mean of each sample, with intervals that hold all at once, at each of several `looks`.

    Raises:
        ValueError: a sample is empty.
    """
    if not all(samples):
        raise ValueError("There is no mean of nothing.")
    return differences_together([_together(_difference(values), 1) for values in samples], looks)


def _difference(values: Sequence[float]) -> Difference:
    """The mean of values and its standard error, as yet without an interval."""
    n = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    return Difference(float(np.mean(values)), None, None, None, None, error if error > EXACT else None, n)


def _together(found: Difference, number: int) -> Difference:
    """With the interval, p and `visible` of one of `number`; without them where there is no error."""
    error, freedom = found.error, found.n - 1
    if error is None:
        return replace(found, low=None, high=None, p=None, visible=None)
    half = float(stats.t.ppf(1 - (1 - LEVEL) / 2 / number, freedom)) * error
    return replace(
        found,
        low=found.mean - half,
        high=found.mean + half,
        p=min(1.0, number * float(2 * stats.t.sf(abs(found.mean / error), freedom))),
        visible=_detectable(freedom, number) * error,
    )


def _as_ratio(logs: Difference, number: int) -> Ratio:
    """A mean of log ratios as one of `number` ratios."""
    found = _together(logs, number)
    return Ratio(
        ratio=math.exp(found.mean),
        low=None if found.low is None else _exp(found.low),
        high=None if found.high is None else _exp(found.high),
        p=found.p,
        visible=None if found.visible is None else _exp(found.visible) - 1,
        error=found.error,
        n=found.n,
    )


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < BEYOND else math.inf


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


def seconds_a_step(blocks: Mapping[int, Sequence[tuple[float, float]]]) -> dict[int, float]:
    """The part per step of each block that has every length (see `split`); empty without two lengths."""
    lengths = {steps for block in blocks.values() for steps, _ in block}
    return {
        seed: linear_regression(*zip(*block, strict=True)).slope
        for seed, block in blocks.items()
        if len(lengths) > 1 and {steps for steps, _ in block} == lengths
    }


def _half(found: Estimate) -> float | None:
    return None if found.high is None else found.high - found.mean


def _t(freedom: int) -> float:
    return float(stats.t.ppf((1 + LEVEL) / 2, freedom))


@cache
def _spread_factors(freedom: int) -> tuple[float, float]:
    """The ends of a standard deviation's interval over its estimate (chi-squared)."""
    low, high = (math.sqrt(freedom / float(stats.chi2.ppf(at, freedom))) for at in _TAILS)
    return low, high


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
