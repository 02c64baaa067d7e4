"""Attribution on made-up times: hidden costs are named; what no factor covers is unexplained."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.blind.attribution import (
    MEASURES,
    UNEXPLAINED,
    Attribution,
    Run,
    attribute,
    noise_floors,
    screening,
)
from tests.blind.launch import FACTORS

PLAIN = {"step_ms": 12.0, "fixed_s": 0.3, "launch_s": 9.0}
NOISE = {"step_ms": 0.4, "fixed_s": 0.02, "launch_s": 0.5}


def made_up(
    seed: int, factor: str | None = None, measure: str = "step_ms", floors: float = 0.0, blocks: int = 5
) -> tuple[list[Run], float]:
    """Runs whose other launch costs so many noise floors more, and that cost; a factor of None covers it not.

    Each block also has its own drift, which is the same for all its runs.
    """
    draw = random.Random(seed)

    def times(drift: float) -> dict[str, float]:
        return {name: PLAIN[name] * drift + draw.gauss(0, NOISE[name]) for name in MEASURES}

    runs = []
    for block in range(blocks):
        drift = draw.uniform(0.9, 1.2)
        runs += [Run(block, False, frozenset(), times(drift)) for _ in range(2)]
        for equalised in [*screening(FACTORS), *[frozenset(FACTORS)] * 2]:
            runs.append(Run(block, True, equalised, times(drift)))
    size = floors * noise_floors(runs)[measure]
    costly = [
        replace(run, times={**run.times, measure: run.times[measure] + size})
        if run.other and factor not in run.equalised
        else run
        for run in runs
    ]
    return costly, size


def found(runs: Sequence[Run]) -> Attribution:
    return attribute(runs, FACTORS)


@pytest.mark.parametrize(("number", "runs"), [(2, 4), (3, 4), (7, 8), (10, 12), (11, 12)])
def test_a_design_equalises_each_factor_in_half_of_its_runs_and_each_pair_in_a_quarter(
    number: int, runs: int
) -> None:
    factors = [str(each) for each in range(number)]
    design = screening(factors)
    assert len(design) == runs and design[-1] == frozenset()
    for factor in factors:
        assert sum(factor in row for row in design) == runs // 2
        assert all(
            sum({factor, each} <= row for row in design) == runs // 4 for each in factors if each != factor
        )


def test_more_factors_than_a_design_has_are_refused() -> None:
    with pytest.raises(ValueError, match="There are 12 factors, and 12 runs tell 11 apart"):
        screening([str(each) for each in range(12)])


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("factor", FACTORS)
def test_every_factor_is_named_with_the_size_of_its_cost(factor: str, measure: str) -> None:
    runs, size = made_up(FACTORS.index(factor), factor, measure, floors=3.0)
    named = found(runs).named
    assert named is not None and (named.name, named.measure) == (factor, measure)
    assert named.cost.low is not None and named.cost.low > 0 and named.holds(size)
    assert not named.holds(0.0) and not named.holds(3 * size)


@pytest.mark.parametrize("measure", MEASURES)
def test_what_no_factor_covers_is_unexplained(measure: str) -> None:
    runs, size = made_up(7, None, measure, floors=4.0)
    named = found(runs).named
    assert named is not None and (named.name, named.measure) == (UNEXPLAINED, measure)
    assert named.holds(size)


def test_without_a_fault_nothing_is_named() -> None:
    falsely = [seed for seed in range(40) if found(made_up(seed)[0]).named is not None]
    assert len(falsely) <= 2


def test_what_is_below_the_noise_floor_is_not_claimed() -> None:
    runs, _ = made_up(3, "hook", floors=0.5)
    assert found(runs).named is None


def test_the_total_is_the_other_launch_with_nothing_equalised() -> None:
    runs, size = made_up(11, "proxy", "launch_s", floors=6.0)
    total = found(runs).total["launch_s"]
    assert total.low is not None and total.high is not None and total.low < size < total.high
    assert total.low > 0


def test_runs_that_can_tell_nothing_are_refused() -> None:
    runs, _ = made_up(1)
    with pytest.raises(ValueError, match="needs two plain runs in each of two blocks"):
        found([run for run in runs if run.block == 0])
    with pytest.raises(ValueError, match="don't differ in step_ms"):
        found([run if run.other else replace(run, times=PLAIN) for run in runs])
    for lacks in (frozenset[str](), frozenset(FACTORS), screening(FACTORS)[4]):
        with pytest.raises(ValueError, match="Block 2 lacks 1 of the 15 runs"):
            found([run for run in runs if run.block != 2 or not run.other or run.equalised != lacks])
