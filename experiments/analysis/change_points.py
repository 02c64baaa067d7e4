"""Change points: between which campaigns the times of a cell changed for good.

The rule is binary segmentation with Student's t. Of all gaps between campaigns, the one is taken at which the
mean logarithms before and after differ most, in standard errors. If p, corrected for every gap that is tested
(Bonferroni), is below 5 %, it is a change point, and both sides are searched in the same way. At last each
change point is tested against its two neighbouring segments alone, and the weakest goes until all hold.

The spread is that of runs within their campaigns, so that no change inflates it. The rule therefore asks
whether campaigns differ by more than chance among their runs: if the machine was slower on one day, that is a
change, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from experiments.analysis.statistics import EXACT, LEVEL


@dataclass(frozen=True)
class Shift:
    """A change point: how many times as long runs take after it as before, up to the next change points."""

    at: int  # the first campaign after it
    ratio: float
    low: float  # ends of the interval, which holds for all gaps at once
    high: float
    t: float  # the change of the logarithm, in standard errors
    p: float  # of no change, corrected


@dataclass(frozen=True)
class _Runs:
    """The runs of a line's campaigns, as sums up to each campaign."""

    numbers: list[int]
    sums: list[float]
    spread: float  # standard deviation within campaigns
    freedom: int
    tests: int

    def shift(self, begin: int, at: int, end: int) -> Shift:
        """The campaigns from `at` to `end` against those from `begin` to `at`; the ends are left out."""
        before, after = self.numbers[at] - self.numbers[begin], self.numbers[end] - self.numbers[at]
        more = (self.sums[end] - self.sums[at]) / after - (self.sums[at] - self.sums[begin]) / before
        error = self.spread * math.sqrt(1 / before + 1 / after)
        half = float(stats.t.ppf(1 - (1 - LEVEL) / 2 / self.tests, self.freedom)) * error
        p = min(1.0, self.tests * float(2 * stats.t.sf(abs(more) / error, self.freedom)))
        return Shift(at, math.exp(more), math.exp(more - half), math.exp(more + half), more / error, p)


def change_points(campaigns: Sequence[Sequence[float]], tests: int, floor: float = 0.0) -> list[Shift] | None:
    """The change points of one line of campaigns; None if no campaign shows how far equal runs are apart.

    Args:
        campaigns: logarithms of the times of its runs, by campaign, in the order of time.
        tests: how many gaps between campaigns are tested together, in this line and others.
        floor: the noise floor, as a fraction; no smaller change is claimed.

    Raises:
        ValueError: a campaign has no run.
    """
    if not all(campaigns):
        raise ValueError("A campaign without runs has no mean.")
    numbers = [len(each) for each in campaigns]
    freedom = sum(numbers) - len(numbers)
    squares = sum(float(np.var(each)) * len(each) for each in campaigns)
    if not freedom or math.sqrt(squares / freedom) < EXACT:
        return None
    runs = _Runs(
        numbers=[0, *np.cumsum(numbers).tolist()],
        sums=[0.0, *np.cumsum([sum(each) for each in campaigns]).tolist()],
        spread=math.sqrt(squares / freedom),
        freedom=freedom,
        tests=tests,
    )
    found = sorted(_segment(runs, 0, len(campaigns), floor))
    while found:
        ends = [0, *found, len(campaigns)]
        shifts = [runs.shift(*ends[number : number + 3]) for number in range(len(found))]
        weakest = max(shifts, key=lambda each: (not _claimed(each, floor), -abs(each.t)))
        if _claimed(weakest, floor):
            return shifts
        found.remove(weakest.at)
    return []


def _segment(runs: _Runs, begin: int, end: int, floor: float) -> list[int]:
    """The change points among the campaigns from `begin` to `end`, in no order."""
    shifts = [runs.shift(begin, at, end) for at in range(begin + 1, end)]
    claimed = [each for each in shifts if _claimed(each, floor)]
    if not claimed:
        return []
    at = max(claimed, key=lambda each: abs(each.t)).at
    return [at, *_segment(runs, begin, at, floor), *_segment(runs, at, end, floor)]


def _claimed(shift: Shift, floor: float) -> bool:
    return shift.p < 1 - LEVEL and abs(math.log(shift.ratio)) > math.log1p(floor)
