"""Change points, held to what they promise by simulation: few false alarms, and few changes missed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from experiments.analysis.change_points import change_points

LINES, CAMPAIGNS, RUNS = 4, 6, 5
GAPS = LINES * (CAMPAIGNS - 1)
TIMES = 300


def drawn(chance: np.random.Generator, tails: str) -> NDArray[np.float64]:
    """Logarithms of the times of a line's runs, whose spread is 1 %."""
    size = (CAMPAIGNS, RUNS)
    if tails == "normal":
        return 0.01 * chance.normal(size=size)
    if tails == "skewed":  # a run is now and then slower, and never much faster
        return 0.01 * (chance.exponential(size=size) - 1)
    return 0.01 * chance.standard_t(5, size=size) / math.sqrt(5 / 3)


@pytest.mark.parametrize("tails", ["normal", "heavy", "skewed"])
def test_of_twenty_histories_without_a_change_one_has_a_false_alarm_at_most(tails: str) -> None:
    chance = np.random.default_rng(1)
    alarms = sum(
        any(change_points(drawn(chance, tails).tolist(), GAPS) for _ in range(LINES)) for _ in range(TIMES)
    )
    # What chance makes of 5 % in so many histories, 99 times in 100.
    assert alarms <= stats.binom.ppf(0.99, TIMES, 0.05)


@pytest.mark.parametrize("at", range(1, CAMPAIGNS))
def test_four_in_five_changes_of_three_times_the_spread_are_found_where_they_are(at: int) -> None:
    chance = np.random.default_rng(at)
    found = covered = 0
    for _ in range(TIMES):
        logs = drawn(chance, "normal")
        logs[at:] += 0.03
        shifts = change_points(logs.tolist(), GAPS)
        assert shifts is not None
        found += [shift.at for shift in shifts] == [at]
        covered += any(shift.low < math.exp(0.03) < shift.high for shift in shifts)
    assert found / TIMES >= 0.8 and covered / TIMES >= 0.95


def test_several_changes_are_found_with_what_they_change() -> None:
    chance = np.random.default_rng(7)
    logs = chance.normal(0, 0.002, (9, 5))
    logs[3:] += 0.10
    logs[6:] -= 0.04
    up, down = change_points(logs.tolist(), 8) or []
    assert (up.at, down.at) == (3, 6)
    assert up.low < math.exp(0.10) < up.high and down.low < math.exp(-0.04) < down.high
    assert up.t > 0 > down.t and max(up.p, down.p) < 1e-6


def test_the_interval_is_students_with_the_spread_within_campaigns() -> None:
    before, after = [0.0, 0.01, 0.02], [0.2, 0.21, 0.22, 0.23]
    (shift,) = change_points([before, after], 3) or []
    squares = sum((value - np.mean(each)) ** 2 for each in (before, after) for value in each)
    error = math.sqrt(squares / 5 * (1 / 3 + 1 / 4))
    more = float(np.mean(after) - np.mean(before))
    assert shift.at == 1 and shift.ratio == pytest.approx(math.exp(more))
    assert shift.t == pytest.approx(more / error)
    assert shift.p == pytest.approx(3 * stats.ttest_ind(after, before).pvalue)
    half = stats.t.ppf(1 - 0.05 / 6, 5) * error
    assert (shift.low, shift.high) == pytest.approx((math.exp(more - half), math.exp(more + half)))


def test_a_change_within_the_noise_is_none() -> None:
    campaigns = [[0.0, 0.001, 0.002], [0.02, 0.021, 0.022]]
    assert [shift.at for shift in change_points(campaigns, 1) or []] == [1]
    assert [shift.at for shift in change_points(campaigns, 1, floor=0.015) or []] == [1]
    assert change_points(campaigns, 1, floor=0.03) == []


def test_single_runs_and_runs_without_spread_show_nothing() -> None:
    assert change_points([[0.0], [0.5], [0.5]], 2) is None
    assert change_points([[0.0, 0.0], [0.5, 0.5]], 1) is None
    # One campaign with several runs gives the spread for all.
    assert [each.at for each in change_points([[0.0, 0.01, 0.0, 0.01], [0.5], [0.5]], 2) or []] == [1]
    with pytest.raises(ValueError, match="without runs"):
        change_points([[0.0, 0.1], []], 1)
