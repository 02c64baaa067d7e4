"""Looking at a campaign seed by seed (`--decide`): how often that ends in a wrong conclusion, simulated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.analysis.sequential import is_decided
from experiments.analysis.statistics import Ratio, paired_ratio, ratios_together
from experiments.analysis.verdicts import outcome
from experiments.campaign.sequential import FIRST_LOOK

SEEDS, MARGIN, CAMPAIGNS = 10, 0.03, 400
LOOKS = SEEDS - FIRST_LOOK + 1
MISSES = 0.05 + 2 * math.sqrt(0.05 * 0.95 / CAMPAIGNS)  # of so many campaigns, chance allowed for


@dataclass
class Ended:
    """How a campaign ended: its last ratios, and after how many seeds."""

    ratios: list[Ratio]
    seeds: int


def campaign(logs: npt.NDArray[np.float64]) -> Ended:
    """A campaign that looks after every seed; `logs` has the log ratios [comparisons, seeds]."""
    ratios: list[Ratio] = []
    for seeds in range(FIRST_LOOK, SEEDS + 1):
        found = [paired_ratio([(math.exp(each), 1.0) for each in row[:seeds]]) for row in logs]
        ratios = ratios_together([each for each in found if each is not None], LOOKS)
        if all(is_decided(each, MARGIN) for each in ratios):
            return Ended(ratios, seeds)
    return Ended(ratios, SEEDS)


def simulated(truth: float, spread: float, comparisons: int = 2) -> list[Ended]:
    chance = np.random.default_rng(1)
    return [campaign(chance.normal(truth, spread, (comparisons, SEEDS))) for _ in range(CAMPAIGNS)]


def share(of: list[bool]) -> float:
    return sum(of) / len(of)


def different(ended: Ended) -> bool:
    return any(outcome(each) in ("longer", "shorter") for each in ended.ratios)


def small(ended: Ended) -> bool:
    return any(
        is_decided(each, MARGIN) and outcome(each) not in ("longer", "shorter") for each in ended.ratios
    )


def test_equal_stacks_are_seldom_called_different() -> None:
    assert share([different(each) for each in simulated(0.0, 0.02)]) < MISSES


def test_a_difference_as_large_as_the_margin_is_seldom_called_small() -> None:
    assert share([small(each) for each in simulated(math.log(1 + MARGIN), 0.02)]) < MISSES


def test_the_looks_would_mislead_if_they_were_not_counted() -> None:
    chance = np.random.default_rng(1)
    wrong = []
    for _ in range(CAMPAIGNS):
        logs = chance.normal(0.0, 0.02, SEEDS)
        found = [paired_ratio([(math.exp(x), 1.0) for x in logs[:n]]) for n in range(FIRST_LOOK, SEEDS + 1)]
        wrong.append(any(each is not None and outcome(each) in ("longer", "shorter") for each in found))
    assert share(wrong) > MISSES


def test_it_ends_early_where_the_answer_is_clear() -> None:
    for truth, spread in ((math.log(1.5), 0.03), (0.0, 0.005)):
        found = simulated(truth, spread, comparisons=1)
        assert share([all(is_decided(each, MARGIN) for each in ended.ratios) for ended in found]) > 0.95
        assert np.mean([ended.seeds for ended in found]) < SEEDS - 2


def test_two_pairs_decide_nothing() -> None:
    found = paired_ratio([(1.5, 1.0), (1.5001, 1.0)])
    assert found is not None and outcome(found) == "longer" and not is_decided(found, MARGIN)
