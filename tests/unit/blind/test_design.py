"""The trials' design on made-up times: hidden costs are named; what no factor covers is unexplained."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from experiments.analysis.attribution import MEASURES, Measure
from tests.blind.design import NO_FACTOR, Made, attributed, block_of, floors_by, name_of, screening
from tests.blind.launch import FACTORS

PLAIN: dict[Measure, float] = {"step_ms": 12.0, "fixed_s": 0.3, "launch_s": 9.0}
NOISE: dict[Measure, float] = {"step_ms": 0.4, "fixed_s": 0.02, "launch_s": 0.5}
Floors = dict[Measure, float]
ALL_IN_FEW_BLOCKS = (FACTORS, 2)
FEW_IN_FIVE_BLOCKS = (("tokenizing", "hook", "proxy"), 5)
DESIGNS = [ALL_IN_FEW_BLOCKS, FEW_IN_FIVE_BLOCKS]


def made_up(
    seed: int,
    factor: str | None = None,
    measure: Measure = "step_ms",
    floors: float = 0.0,
    design: tuple[Sequence[str], int] = ALL_IN_FEW_BLOCKS,
) -> tuple[list[Made], Floors, float]:
    """Runs whose other launch costs so many noise floors more, the floors, and that cost.

    A factor of None covers it not. Each block also has its own drift, which is the same for all its runs.
    """
    draw, (factors, blocks) = random.Random(seed), design

    def times(drift: float) -> dict[Measure, float]:
        return {name: PLAIN[name] * drift + draw.gauss(0, NOISE[name]) for name in MEASURES}

    noise, made = floors_by([(times(1.0), times(1.0)) for _ in range(5)]), list[Made]()
    for block in range(blocks):
        drift = draw.uniform(0.9, 1.2)
        made += [Made(block, *asked, times(drift)) for asked in block_of(factors, blocks)]
    size = floors * noise[measure]
    costly = [
        replace(run, times={**run.times, measure: run.times[measure] + size})
        if run.other and factor not in run.equalised
        else run
        for run in made
    ]
    return costly, noise, size


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
@pytest.mark.parametrize(
    ("factor", "design"),
    [(factor, design) for design in DESIGNS for factor in design[0]],
    ids=lambda each: each if isinstance(each, str) else f"{each[1]} blocks",
)
def test_every_factor_is_named_with_the_size_of_its_cost(
    factor: str, design: tuple[Sequence[str], int], measure: Measure
) -> None:
    made, floors, size = made_up(FACTORS.index(factor), factor, measure, floors=3.0, design=design)
    named = attributed(made, design[0], floors).named
    assert named is not None and (name_of(named), named.measure) == (factor, measure)
    assert named.cost.low is not None and named.cost.low > 0 and named.holds(size)
    assert not named.holds(0.0) and not named.holds(3 * size)


@pytest.mark.parametrize("design", DESIGNS, ids=["2 blocks", "5 blocks"])
@pytest.mark.parametrize("measure", MEASURES)
def test_what_no_factor_covers_is_unexplained(measure: Measure, design: tuple[Sequence[str], int]) -> None:
    made, floors, size = made_up(8, None, measure, floors=4.0, design=design)
    named = attributed(made, design[0], floors).named
    assert named is not None and (name_of(named), named.measure) == (NO_FACTOR, measure)
    assert named.holds(size)


@pytest.mark.parametrize("design", DESIGNS, ids=["2 blocks", "5 blocks"])
def test_without_a_fault_nothing_is_named(design: tuple[Sequence[str], int]) -> None:
    falsely = 0
    for seed in range(40):
        made, floors, _ = made_up(seed, design=design)
        falsely += attributed(made, design[0], floors).named is not None
    assert falsely <= 2


def test_what_is_below_the_noise_floor_is_not_claimed() -> None:
    made, floors, _ = made_up(3, "hook", floors=0.5)
    assert attributed(made, FACTORS, floors).named is None


def test_a_size_that_is_not_well_known_is_held_by_more() -> None:
    made, floors, _ = made_up(5, "hook", floors=3.0)
    named = attributed(made, FACTORS, floors).named
    assert named is not None and named.cost.high is not None
    beyond = named.cost.high + 0.5 * (named.cost.high - named.cost.mean)
    assert not named.holds(beyond) and named.holds(beyond, within=2 * (named.cost.high - named.cost.mean))


def test_runs_that_can_tell_nothing_are_refused() -> None:
    made, floors, _ = made_up(1)
    with pytest.raises(ValueError, match="needs two pairs of plain runs"):
        floors_by([(PLAIN, PLAIN)])
    with pytest.raises(ValueError, match="don't differ in step_ms"):
        floors_by([(PLAIN, PLAIN)] * 3)
    for lacks in (frozenset[str](), frozenset(FACTORS), screening(FACTORS)[4]):
        with pytest.raises(ValueError, match=r"Block 1 lacks [12] of the 16 runs"):
            attributed(
                [run for run in made if run.block != 1 or not run.other or run.equalised != lacks],
                FACTORS,
                floors,
            )


def test_runs_that_don_t_vary_have_no_interval_and_no_name() -> None:
    made, floors, _ = made_up(1)
    found = attributed([replace(run, times=PLAIN) for run in made], FACTORS, floors)
    assert found.named is None and all(each.cost.low is None for each in found.causes)
