"""A small model of a step's time: it finds what was put in, and says what it can't know."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest
from scipy import stats

from experiments.analysis.scaling_model import TERMS, Amounts, ScalingModel, Term, TooFew, fit

COSTS: Mapping[Term, float] = {
    "fixed": 5.0,
    "flop": 8.0,
    "attention": 3.0,
    "parameters": 2.0,
    "bytes": 1.5,
    "rounds": 4.0,
    "link": 0.9,
}
NONE: dict[Term, float] = dict.fromkeys(TERMS, 0.0)


def step(size: float, length: float, millions: float, ranks: int, gbit: float | None) -> Amounts:
    """By hand: `size` in 10^9 operations at length 1; bytes of a ring, each of fp32."""
    sent = millions * 4 * 2 * (ranks - 1) / ranks
    return {
        "fixed": 1.0,
        "flop": size * length,
        "attention": size * length**2,
        "parameters": millions,
        "bytes": sent,
        "rounds": 2.0 * (ranks - 1),
        "link": sent * 8 / gbit if gbit is not None and ranks > 1 else 0.0,
    }


def ms(amounts: Amounts, costs: Mapping[Term, float] = COSTS) -> float:
    return sum(costs[term] * amounts[term] for term in TERMS)


ALONE = [step(*each, 1, None) for each in itertools.product((2, 10), (1, 3), (1, 5))]
TOGETHER = [step(10, 1, millions, 2, gbit) for millions, gbit in itertools.product((1, 5), (None, 1))]
CELLS = [*ALONE, *TOGETHER, step(2, 1, 5, 2, None)]


def fitted(cells: list[tuple[Amounts, float]], looks: int = 1) -> ScalingModel:
    found = fit(cells, looks)
    assert isinstance(found, ScalingModel)
    return found


def test_without_noise_every_cost_and_every_cell_is_exact() -> None:
    found = fitted([(cell, ms(cell)) for cell in CELLS])
    assert {term: cost.value for term, cost in found.costs.items()} == pytest.approx(COSTS)
    assert found.lost == found.absent == [] and found.cells == len(CELLS)
    assert found.held_out is not None and found.held_out.worst < 1e-9
    far = step(10, 1, 5, 64, 100)
    (predicted,) = found.predictions([far])
    assert predicted.value == pytest.approx(ms(far)) and found.step_ms(far) == predicted.value


def test_intervals_hold_all_at_once_as_often_as_they_claim() -> None:
    """Of 300 campaigns with 3 % of noise, in nearly 95 of 100 all costs, and all predictions, are inside."""
    noise = random.Random(1)
    far = [step(10, 1, 5, ranks, gbit) for ranks in (4, 8, 64) for gbit in (None, 10)]
    costs = predictions = 0
    for _ in range(300):
        found = fitted([(cell, ms(cell) * (1 + noise.gauss(0, 0.03))) for cell in CELLS])
        costs += all(found.costs[term].low <= COSTS[term] <= found.costs[term].high for term in TERMS)
        steps = [ms(each) * (1 + noise.gauss(0, 0.03)) for each in far]
        intervals = found.predictions(far)
        predictions += all(each.low <= took <= each.high for each, took in zip(intervals, steps, strict=True))
    assert costs > 270 and predictions > 270


def test_a_cost_is_never_below_zero() -> None:
    """What would come out negative is zero, and its interval begins there."""
    cells = [(cell, ms(cell, {**COSTS, "parameters": 0.0}) - 0.2 * cell["parameters"]) for cell in CELLS]
    found = fitted(cells).costs["parameters"]
    assert found.value == found.low == 0.0 < found.high


def test_the_error_is_that_of_cells_that_were_left_out() -> None:
    """By hand, of a single cost c with the least sum of (c / y - 1)²: c = (sum of 1 / y) / (sum of 1 / y²).

    20 and 40 ms make it 24, 140 % above 10; 10 and 40 make it 11.8, 41 % below 20; 10 and 20 make it 12,
    70 % below 40.
    """
    same: Amounts = NONE | {"fixed": 1.0}
    found = fitted([(same, took) for took in (10.0, 20.0, 40.0)])
    assert found.held_out is not None and found.held_out.cells == 3
    assert (found.held_out.median, found.held_out.worst) == pytest.approx((0.7, 1.4))
    assert found.costs["fixed"].value == pytest.approx(
        (1 / 10 + 1 / 20 + 1 / 40) / (1 / 100 + 1 / 400 + 1 / 1600)
    )


def test_a_cell_that_alone_tells_a_cost_is_not_held_out() -> None:
    cells = [*ALONE, step(10, 1, 5, 2, None)]
    found = fitted([(cell, ms(cell)) for cell in cells])
    assert found.held_out is not None and found.held_out.cells == len(ALONE)
    assert found.held_out.worst == pytest.approx(0, abs=1e-9)


def test_more_terms_than_cells_can_tell_are_refused() -> None:
    assert fit([(cell, ms(cell)) for cell in ALONE[:2]]) == TooFew(cells=2, terms=2)


def test_what_cells_can_not_tell_apart_is_named_and_predicted_only_where_it_stays_so() -> None:
    # One length: attention goes with the operations. One size of two ranks: rounds go with bytes.
    cells = [cell for cell in ALONE if cell["flop"] == cell["attention"]]
    cells += [step(size, 1, 5, 2, None) for size in (2, 10)]
    model = fitted([(cell, ms(cell)) for cell in cells])
    assert model.lost == ["attention", "rounds"] and model.absent == ["link"]
    assert model.costs["flop"].value == pytest.approx(COSTS["flop"] + COSTS["attention"])
    assert model.determines(step(30, 1, 9, 1, None))
    assert not model.determines(step(30, 2, 9, 1, None)), "another length"
    assert model.determines(step(30, 1, 5, 2, None))
    assert not model.determines(step(30, 1, 5, 4, None)), "more rounds, and not as many more bytes"
    assert not model.determines(step(30, 1, 5, 2, 10)), "a limited link, of which no cell has one"


def test_one_rate_tells_nothing_of_others() -> None:
    """With a single rate the link's time goes with the bytes."""
    cells = [*ALONE, *(step(10, 1, millions, 2, 1) for millions in (1, 5, 9))]
    model = fitted([(cell, ms(cell)) for cell in cells])
    assert model.lost == ["link"]
    assert model.determines(step(10, 1, 5, 8, 1)) and not model.determines(step(10, 1, 5, 8, 10))


def test_more_predictions_and_more_looks_make_wider_intervals() -> None:
    noise = random.Random(4)
    cells = [(cell, ms(cell) * (1 + noise.gauss(0, 0.02))) for cell in CELLS]
    far, freedom = step(10, 1, 5, 8, None), len(CELLS) - len(TERMS)

    def half(looks: int, number: int) -> float:
        first, *_ = fitted(cells, looks).predictions([far] * number)
        return first.high - first.value

    one, six = (float(stats.t.ppf(1 - 0.025 / number, freedom)) for number in (1, 6))
    assert half(2, 3) / half(1, 1) == pytest.approx(six / one)
    assert half(1, 6) == pytest.approx(half(2, 3))
