"""Least squares over runs in blocks: the costs, their intervals either way, and which of them is named."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from experiments.analysis.attribution import (
    FEWEST,
    UNEXPLAINED,
    Attribution,
    Measure,
    Run,
    Sum,
    Term,
    attribute,
    noise_floors,
    times_of,
)
from experiments.analysis.statistics import simultaneous

HOOK, MORE_HOOK = Term(False, "hook", "1"), Term(True, "hook", "1")
LINES, MORE_LINES = Term(False, "lines", "1"), Term(True, "lines", "1")
TERMS = [UNEXPLAINED, HOOK, LINES, MORE_HOOK, MORE_LINES]
SUMS: list[Sum] = [(UNEXPLAINED,), (HOOK,), (HOOK, MORE_HOOK), (MORE_HOOK,), (MORE_LINES,)]
TRUE = {(UNEXPLAINED,): 4.0, (HOOK,): 10.0, (HOOK, MORE_HOOK): 17.0, (MORE_HOOK,): 7.0, (MORE_LINES,): 0.0}


def made(seed: int, blocks: int, noise: tuple[float, float] = (1.0, 1.0), apart: float = 0.0) -> list[Run]:
    """A full factorial on two stacks in each block, whose costs are `TRUE`.

    Args:
        seed: of chance.
        blocks: how many; each has a drift.
        noise: spread of the baseline's runs, and of the other stack's.
        apart: spread of what all runs of the other stack share in a block.
    """
    chance, runs = random.Random(seed), []
    for block in range(blocks):
        drift, own = chance.gauss(50, 5), chance.gauss(0, apart) if apart else 0.0
        for other, hook, lines in itertools.product((False, True), repeat=3):
            there = {HOOK: hook, LINES: lines, UNEXPLAINED: other}
            there |= {MORE_HOOK: other and hook, MORE_LINES: other and lines}
            ms = drift + 4 * other + 10 * hook + 7 * (other and hook) - 3 * lines + own * other
            ms += chance.gauss(0, noise[other])
            terms = frozenset(term for term, holds in there.items() if holds)
            runs.append(Run(block, other, terms, {"step_ms": ms}))
    return runs


def said(runs: Sequence[Run], floor: float | None = 1.0) -> Attribution:
    """What is said of these runs."""
    return attribute(runs, TERMS, SUMS, {} if floor is None else {"step_ms": floor})


def test_in_a_full_factorial_costs_and_intervals_are_those_of_paired_differences() -> None:
    runs = made(1, FEWEST)

    def mean(block: int, term: Term, without: Term, *, holds: bool) -> float:
        """Of a block's runs on one stack, with a value or without it."""
        return fmean(
            run.times["step_ms"]
            for run in runs
            if run.block == block
            and run.other == (term in (MORE_HOOK, MORE_LINES))
            and ((without if run.other else term) in run.terms) == holds
        )

    def paired(term: Term, alone: Term) -> list[float]:
        return [
            mean(block, term, alone, holds=True) - mean(block, term, alone, holds=False)
            for block in range(FEWEST)
        ]

    on_baseline, on_other = paired(HOOK, HOOK), paired(MORE_HOOK, HOOK)
    more = [other - base for other, base in zip(on_other, on_baseline, strict=True)]
    lines = [a - b for a, b in zip(paired(MORE_LINES, LINES), paired(LINES, LINES), strict=True)]
    # The stack itself: the difference of the stacks' means, less half of what it pays more for both factors.
    stack = [
        fmean(run.times["step_ms"] * (1 if run.other else -1) * 2 for run in runs if run.block == block)
        - (hook + line) / 2
        for block, hook, line in zip(range(FEWEST), more, lines, strict=True)
    ]
    expected = simultaneous([stack, on_baseline, on_other, more, lines])
    for each, wanted in zip(said(runs).costs["step_ms"].values(), expected, strict=True):
        assert wanted.low is not None and each.low is not None
        assert (each.mean, each.low, each.high, each.p, each.n) == pytest.approx(
            (wanted.mean, wanted.low, wanted.high, wanted.p, wanted.n)
        )


def test_either_way_to_intervals_gives_the_same_costs() -> None:
    runs = made(2, FEWEST)
    few = [run for run in runs if run.block < 2]
    twice = [replace(run, block=run.block % 2) for run in few]
    by_fit = said(twice).costs["step_ms"]
    alone = [said([run for run in runs if run.block == block]).costs["step_ms"] for block in (0, 1)]
    for terms, cost in by_fit.items():
        assert cost.mean == pytest.approx(fmean(each[terms].mean for each in alone))
        assert cost.n == 2 and cost.low is not None and cost.low < cost.mean
        assert all(each[terms].low is None for each in alone)  # a single block has no interval


@pytest.mark.parametrize(
    ("blocks", "noise", "apart"),
    [
        (2, (1.0, 1.0), 0.0),
        (2, (0.3, 3.0), 0.0),
        (3, (3.0, 0.3), 0.0),
        (FEWEST, (0.3, 3.0), 0.0),
        (FEWEST, (1.0, 1.0), 3.0),
    ],
)
def test_intervals_hold_all_at_once_as_often_as_they_say(
    blocks: int, noise: tuple[float, float], apart: float
) -> None:
    """Also where one stack's runs vary more; and over the blocks, where a stack's runs share a drift."""
    missed = 0
    for seed in range(150):
        costs = said(made(seed, blocks, noise, apart)).costs["step_ms"]
        missed += any(
            cost.low is None or cost.high is None or not cost.low <= TRUE[terms] <= cost.high
            for terms, cost in costs.items()
        )
    assert missed <= 15  # of 150; 5 % would be 7.5, and 16 or more happen in under 1 of 200 such tests


def test_the_largest_claimed_cost_of_the_other_stack_is_named() -> None:
    named = said(made(3, FEWEST)).named
    assert named is not None and (named.term, named.measure) == (MORE_HOOK, "step_ms")
    assert named.holds(7.0) and not named.holds(70.0)
    assert named.share == pytest.approx(named.cost.mean)
    # What costs both stacks as much is no cause, nor is what is below the noise floor, or without one.
    assert HOOK not in {each.term for each in said(made(3, FEWEST)).causes}
    assert said(made(3, FEWEST), floor=30.0).named is None
    assert said(made(3, FEWEST), floor=None).named is None


def test_a_stack_of_which_nothing_is_left_over_has_no_interval() -> None:
    """Only one run of the baseline in each block: one of the other stack says nothing of how it varies."""
    runs = [run for run in made(4, 2) if run.other or not run.terms]
    terms = [UNEXPLAINED, MORE_HOOK]
    plain = [replace(run, terms=run.terms & {*terms}) for run in runs]
    one_block_less = [run for run in plain if run.other or run.block == 0]
    with pytest.raises(
        ValueError, match="The runs of block 1 don't tell the terms apart; make those it lacks"
    ):
        attribute(one_block_less, terms, [(UNEXPLAINED,)], {})
    found = attribute(plain, terms, [(UNEXPLAINED,), (MORE_HOOK,)], {}).costs["step_ms"]
    assert all(each.low is not None for each in found.values())
    still = [replace(run, times={"step_ms": 50.0 + 9 * run.other}) for run in plain]
    found = attribute(still, terms, [(UNEXPLAINED,), (MORE_HOOK,)], {}).costs["step_ms"]
    assert found[(UNEXPLAINED,)].mean == pytest.approx(9)
    assert all((each.low, each.high, each.p) == (None, None, None) for each in found.values())


def test_only_measures_that_all_runs_have_are_judged() -> None:
    assert times_of(2.0, 100, 1.5, 9.0) == {"step_ms": 20.0, "fixed_s": 0.5, "launch_s": 7.0}
    assert times_of(2.0, 100, None, None) == {"step_ms": 20.0}
    first, *rest = made(5, FEWEST)
    more = replace(first, times={**first.times, "launch_s": 1.0})
    assert said([more, *rest]).costs.keys() == {"step_ms"}


def test_a_floor_is_the_farther_end_of_the_interval_of_runs_made_twice() -> None:
    pairs: list[tuple[dict[Measure, float], dict[Measure, float]]] = [
        ({"step_ms": 10.0, "fixed_s": 1.0}, {"step_ms": 10.0 + each, "fixed_s": 1.0, "launch_s": 3.0})
        for each in (-1.0, 0.0, 2.5)
    ]
    (alone,) = simultaneous([[-1.0, 0.0, 2.5]])
    # `fixed_s` does not vary, and not all runs have `launch_s`.
    floors = noise_floors(pairs)
    assert floors.keys() == {"step_ms"}
    assert alone.high is not None and floors["step_ms"] == pytest.approx(alone.high)
    assert noise_floors([]) == {}
