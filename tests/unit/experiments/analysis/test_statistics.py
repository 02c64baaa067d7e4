"""The report's statistics, checked against known values and, for their coverage, on simulated runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.analysis.statistics import (
    FEWEST,
    MARGIN,
    Difference,
    MedianTime,
    differences_together,
    estimate,
    mean_difference,
    median_time,
    paired_ratio,
    ratios_together,
    simultaneous,
    split,
)
from experiments.analysis.verdicts import is_small, outcome, sign


def test_a_mean_has_students_interval() -> None:
    found = estimate([10.0, 12.0, 14.0])
    assert found is not None and found.low is not None and found.high is not None
    assert (found.mean, found.sd, found.n) == (12.0, 2.0, 3)
    # t for 2 degrees of freedom is 4.302653.
    assert found.high - 12 == pytest.approx(4.302653 * 2 / math.sqrt(3), rel=1e-6)
    alone = estimate([5.0])
    assert alone is not None and (alone.mean, alone.low, alone.sd) == (5.0, None, None)
    assert estimate([]) is None


def test_a_paired_ratio_is_the_geometric_mean_and_cancels_what_pairs_share() -> None:
    drift = [1.0, 3.0, 2.0]  # the machine's, shared by both runs of a block
    found = paired_ratio([(1.21 * slow, 1.1 * slow) for slow in drift])
    assert found is not None
    assert found.ratio == pytest.approx(1.1)
    opposite = paired_ratio([(2.0, 1.0), (1.0, 2.0)])
    assert opposite is not None and opposite.ratio == pytest.approx(1.0) and opposite.p == pytest.approx(1.0)
    single = paired_ratio([(3.0, 2.0)])
    assert single is not None and (single.ratio, single.low, single.p) == (1.5, None, None)
    assert paired_ratio([]) is None
    with pytest.raises(ValueError, match="above 0"):
        paired_ratio([(1.0, 0.0)])


def test_pairs_without_any_spread_are_not_certain_of_anything() -> None:
    exact = paired_ratio([(2.0 * slow, slow) for slow in (1.0, 3.0, 2.0)])
    assert exact is not None and exact.ratio == pytest.approx(2.0)
    assert (exact.low, exact.high, exact.p, exact.visible, exact.n) == (None, None, None, None, 3)
    assert outcome(exact) == "none" and not is_small(exact)
    assert mean_difference([2.0, 2.0, 2.0]) == Difference(2.0, None, None, None, None, None, 3)
    certain = mean_difference([2.0, 2.1, 2.2])
    assert certain is not None and sign(certain) == 1
    # They are no comparison, so others are not corrected for them.
    assert simultaneous([[2.0, 2.1, 2.2], [2.0, 2.0]])[0] == certain
    with pytest.raises(ValueError, match="nothing"):
        simultaneous([[1.0], []])


def test_equivalence_is_claimed_only_where_the_whole_interval_allows() -> None:
    close = paired_ratio([(1.001, 1.0), (0.999, 1.0), (1.002, 1.0), (0.998, 1.0)])
    wide = paired_ratio([(1.1, 1.0), (0.9, 1.0), (1.15, 1.0), (0.88, 1.0)])
    assert close is not None and wide is not None
    assert (outcome(close), outcome(wide)) == ("same", "open")
    # The same pairs are equivalent alone, and not among many.
    logs = np.array([0.012, 0.0, 0.018, 0.006])
    half = stats.t.ppf(0.975, 3) * np.std(logs, ddof=1) / 2
    assert np.mean(logs) + half < math.log1p(MARGIN)
    found = paired_ratio([(math.exp(log), 1.0) for log in logs])
    assert found is not None
    assert outcome(found) == "same"
    assert {outcome(each) for each in ratios_together([found] * 10)} == {"open"}


@pytest.mark.parametrize("n", [5, 10])
def test_the_range_of_the_smallest_visible_difference_has_the_true_one_in_95_of_100(n: int) -> None:
    draw, sd, covered = np.random.default_rng(11), 0.02, 0
    exact = mean_difference(_spread(n, sd))
    assert exact is not None and exact.visible is not None
    for _ in range(1000):
        found = mean_difference(draw.normal(0, sd, n).tolist())
        assert found is not None and found.visible is not None and found.visible_ends is not None
        low, high = found.visible_ends
        assert low < found.visible < high
        covered += low <= exact.visible <= high
    assert 930 <= covered <= 970
    ratio = paired_ratio([(math.exp(each), 1.0) for each in _spread(n, sd)])
    assert ratio is not None and ratio.visible_ends is not None and exact.visible_ends is not None
    assert ratio.visible_ends == pytest.approx(tuple(math.expm1(end) for end in exact.visible_ends))
    alone = paired_ratio([(2.0, 1.0)])
    assert alone is not None and alone.visible_ends is None


def _spread(n: int, sd: float) -> list[float]:
    """Values whose standard deviation is exactly that."""
    values = np.arange(n, dtype=float)
    return ((values - values.mean()) / values.std(ddof=1) * sd).tolist()  # type: ignore[no-any-return]


def test_a_split_gives_back_the_line() -> None:
    line = [(100, 12.0), (500, 52.0)]
    found = split({1: line, 2: line})
    assert found is not None and found.n == 4
    assert [found.fixed_s, found.step_s] == pytest.approx([2.0, 0.1])
    assert found.step_half == pytest.approx(0.0, abs=1e-9)
    two = split({1: line})
    assert two is not None and two.fixed_half is None and two.step_half is None
    assert split({1: [(100, 12.0)], 2: [(100, 13.0)]}) is None


def test_a_split_has_an_interval_only_from_seeds_that_have_every_length() -> None:
    short = {seed: [(100, 12.0 + seed / 10)] for seed in range(1, 6)}
    once = split(short | {3: [*short[3], (500, 52.3)]})  # one long run decides the slope, without a spread
    assert once is not None and (once.fixed_half, once.step_half, once.n) == (None, None, 6)
    assert [once.fixed_s, once.step_s] == pytest.approx([2.3, 0.1])  # one line, as in the dissertation
    twice = split(short | {seed: [*short[seed], (500, 52.0 + seed / 10)] for seed in (1, 2)})
    assert twice is not None and twice.n == 4 and twice.step_half is not None
    assert [twice.fixed_s, twice.step_s] == pytest.approx([2.15, 0.1])  # from seeds 1 and 2 alone


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_intervals_of_a_split_cover_though_long_runs_vary_more(drift: float) -> None:
    draw = np.random.default_rng(17)
    fixed, step, steps = 3.0, 0.1, np.array([250.0, 1250.0])
    covered = np.zeros(2)
    for _ in range(2000):
        slow = 1 + drift * draw.normal(0, 1, (5, 1))  # the machine's drift, shared by a block
        seconds = (fixed + step * steps) * (1 + 0.02 * draw.normal(0, 1, (5, 2))) * slow
        rows = enumerate(seconds.tolist())
        found = split({seed: list(zip(steps.tolist(), row, strict=True)) for seed, row in rows})
        assert found is not None and found.fixed_half is not None and found.step_half is not None
        off = abs(found.fixed_s - fixed), abs(found.step_s - step)
        covered += [off[0] <= found.fixed_half, off[1] <= found.step_half]
    assert (covered / 2000 > 0.935).all() and (covered / 2000 < 0.965).all()


def test_one_stack_against_itself_differs_in_five_of_a_hundred_relabellings() -> None:
    draw = np.random.default_rng(7)
    times = np.exp(draw.normal(4.0, 0.02, size=(10, 2)))  # ten blocks of two runs of one stack
    claims = 0
    for _ in range(2000):
        swapped = draw.random(10) < 0.5
        pairs = [(b, a) if swap else (a, b) for (a, b), swap in zip(times.tolist(), swapped, strict=True)]
        found = paired_ratio(pairs)
        assert found is not None and found.p is not None
        claims += found.p < 0.05
    assert 0.035 < claims / 2000 < 0.065


@pytest.mark.parametrize("effect", [1.0, 1.2, 2.87])
def test_intervals_cover_a_known_effect_as_often_as_they_say(effect: float) -> None:
    draw = np.random.default_rng(11)
    covered = 0
    for _ in range(2000):
        drift = draw.normal(0, 0.1, 5)  # the machine's, shared by a block
        below = np.exp(4 + drift + draw.normal(0, 0.01, 5))
        above = effect * np.exp(4 + drift + draw.normal(0, 0.01, 5))
        found = paired_ratio(list(zip(above.tolist(), below.tolist(), strict=True)))
        assert found is not None and found.low is not None and found.high is not None
        covered += found.low <= effect <= found.high
    assert 0.935 < covered / 2000 < 0.965


def test_the_smallest_visible_difference_is_seen_four_times_in_five() -> None:
    draw = np.random.default_rng(13)
    sd, n = 0.02, 5
    sample = draw.normal(0, 1, n)
    logs = (sample - sample.mean()) / sample.std(ddof=1) * sd
    known = paired_ratio([(math.exp(each), 1.0) for each in logs])
    assert known is not None and known.visible is not None
    seen = 0
    for _ in range(4000):
        tried = draw.normal(math.log1p(known.visible), sd, n)
        found = paired_ratio([(math.exp(each), 1.0) for each in tried])
        assert found is not None and found.p is not None
        seen += found.p < 0.05
    assert 0.78 < seen / 4000 < 0.82


@pytest.mark.parametrize(("n", "number"), [(3, 4), (5, 8)])
def test_among_several_only_larger_differences_are_visible_four_times_in_five(n: int, number: int) -> None:
    draw = np.random.default_rng(23)
    sample = draw.normal(0, 1, n)
    logs = (sample - sample.mean()) / sample.std(ddof=1) * 0.02
    known = paired_ratio([(math.exp(each), 1.0) for each in logs])
    assert known is not None and known.visible is not None
    several = ratios_together([known] * number)[0]
    assert several.visible is not None and several.visible > 1.4 * known.visible
    seen = 0
    for _ in range(4000):
        tried = draw.normal(math.log1p(several.visible), 0.02, n)
        found = paired_ratio([(math.exp(each), 1.0) for each in tried])
        assert found is not None
        seen += outcome(ratios_together([found] * number)[0]) == "longer"
    assert 0.78 < seen / 4000 < 0.82


def test_what_is_made_together_is_corrected_together_and_a_single_pair_is_none_of_it() -> None:
    pairs = [(1.02, 1.0), (1.05, 1.0), (1.03, 1.0)]
    found, single = paired_ratio(pairs), paired_ratio(pairs[:1])
    assert found is not None and found.p is not None and single is not None
    assert ratios_together([found, single]) == [found, single]
    two = ratios_together([found, single, found])
    assert [each.p for each in two] == [pytest.approx(2 * found.p), None, pytest.approx(2 * found.p)]
    assert two[0].low is not None and found.low is not None and two[0].low < found.low
    difference, alone = mean_difference([1.0, 1.5, 0.2]), mean_difference([1.0])
    assert difference is not None and difference.p is not None and difference.visible is not None
    assert alone is not None
    first, second, third = differences_together([difference, alone, difference])
    assert second == alone and first == third
    assert first.p == pytest.approx(2 * difference.p)
    assert first.visible is not None and first.visible > 1.2 * difference.visible


def test_intervals_made_together_exclude_nothing_that_is_true_in_95_of_100_families() -> None:
    draw = np.random.default_rng(31)
    wrong = 0
    for _ in range(1000):
        found = [paired_ratio([(math.exp(each), 1.0) for each in draw.normal(0, 0.02, 5)]) for _ in range(6)]
        together = ratios_together([each for each in found if each is not None])
        assert all((each.p or 0.0) < 0.05 for each in together) == all(
            outcome(each) in ("longer", "shorter") for each in together
        )
        wrong += any(outcome(each) in ("longer", "shorter") for each in together)
    assert 0.03 < wrong / 1000 < 0.07


def test_of_many_that_differ_by_the_margin_one_is_rarely_said_to_differ_by_less() -> None:
    draw = np.random.default_rng(29)
    claims = 0
    for _ in range(400):
        found = [
            paired_ratio([(math.exp(each), 1.0) for each in draw.normal(math.log1p(MARGIN), 0.01, 5)])
            for _ in range(8)
        ]
        together = ratios_together([each for each in found if each is not None])
        claims += any(is_small(each) for each in together)
    assert claims / 400 < 0.06  # about a third without the correction


def test_two_pairs_among_many_see_nothing_and_break_nothing() -> None:
    wild = paired_ratio([(9.0, 1.0), (1.0, 9.0)])
    assert wild is not None
    seen = ratios_together([wild] * 100)[0]
    assert seen.visible == math.inf
    assert outcome(seen) == "open"


def test_a_median_time_is_kaplan_and_meiers_by_hand() -> None:
    # After 1, 2, 3 and 4 s, 4/5, 3/5, 2/5 and 1/5 of the runs are left; the fifth was watched for 5 s.
    found = median_time([4.0, 2.0, 1.0, 3.0], [5.0])
    assert found is not None and (found.median_s, found.n) == (3.0, 5)
    # Greenwood after 1 s: sqrt(1 / (5 * 4)) / |ln 0.8| = 1.002; 0.8 ** exp(1.96 * 1.002) = 0.204 is below a
    # half, so the interval begins there. After 4 s 0.2 ** exp(-1.96 * 0.556) = 0.582 is not: it is open.
    assert (found.low_s, found.high_s) == (1.0, None)
    # A run that is watched no longer than 1.5 s leaves 4 after it: 4/5, 8/15, 4/15 of the runs are left.
    found = median_time([1.0, 2.0, 3.0, 4.0], [1.5])
    assert found is not None and found.median_s == 3.0
    # Half of four are left after the second.
    found = median_time([1.0, 2.0, 3.0, 4.0], [])
    assert found is not None and found.median_s == 2.0
    assert median_time([], []) is None


def test_a_median_time_is_the_published_one() -> None:
    # Weeks of remission (Freireich et al., 1963), with intervals by log(-log) as SAS and R give them.
    treated = median_time([6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35])
    assert treated is not None
    assert (treated.median_s, treated.low_s, treated.high_s) == (23.0, 13.0, None)
    placebo = median_time([1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23], [])
    assert placebo is not None
    assert (placebo.median_s, placebo.low_s, placebo.high_s) == (8.0, 4.0, 11.0)


def test_where_fewer_than_half_reached_it_there_is_no_median() -> None:
    # 1 is left until 10 s, then 2/3 until 30 s: 10 + 2/3 * 20.
    found = median_time([10.0], [30.0, 25.0])
    assert found is not None and found.median_s is None
    assert found.restricted_s == pytest.approx(10 + 2 / 3 * 20) and found.within_s == 30.0
    none = median_time([], [30.0, 31.0, 32.0, 33.0, 34.0])
    assert none == MedianTime(None, None, None, None, None, 5)
    one = median_time([10.0], [30.0, 30.0, 30.0, 30.0])
    assert one is not None and (one.median_s, one.low_s, one.high_s) == (None, 10.0, None)


@pytest.mark.parametrize("runs", [FEWEST, 8, 20])
@pytest.mark.parametrize("watched", [1.0, 50.0])
def test_the_interval_of_a_median_time_covers_it_as_often_as_it_claims(runs: int, watched: float) -> None:
    draw, median, held, tries = np.random.default_rng(1), math.log(2), 0, 400
    for _ in range(tries):
        times = draw.exponential(size=runs)
        reached = times[times <= watched].tolist()
        found = median_time(reached, [watched] * (runs - len(reached)))
        assert found is not None
        above = found.low_s is None or found.low_s <= median
        held += above and (found.high_s is None or median <= found.high_s)
    assert held / tries > 0.92


def test_fewer_runs_have_no_interval_of_their_median() -> None:
    found = median_time([1.0, 2.0, 3.0, 4.0][: FEWEST - 1], [])
    assert found is not None and (found.low_s, found.high_s) == (None, None)
