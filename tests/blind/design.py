"""Which runs a trial makes, and what reports' attribution (`experiments.analysis.attribution`) says of them.

The attribution is told nothing of the launches but which factors were equalised in which run. In each block
the factors are equalised in half of the runs each, by the design of Plackett and Burman, so that every run
counts for every factor.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.analysis.attribution import (
    MEASURES,
    UNEXPLAINED,
    Attribution,
    Cause,
    Measure,
    Run,
    Term,
    attribute,
    by_blocks,
    noise_floors,
)

NO_FACTOR: Final = "unexplained"
_GENERATORS: Final = {
    3: (1, 1, 0),
    7: (1, 1, 1, 0, 1, 0, 0),
    11: (1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 0),
}
"""The first row of each design of Plackett and Burman by its columns; the others are the same, shifted."""

Times = Mapping[Measure, float]
Asked = tuple[bool, frozenset[str]]
"""Whether a run is of the other launch, and which factors are equalised in it."""


@dataclass(frozen=True)
class Made:
    """The times of one run."""

    block: int
    other: bool  # False: of the plain launch
    equalised: frozenset[str]  # factors with the plain launch's value
    times: Times


def screening(factors: Sequence[str]) -> list[frozenset[str]]:
    """Which factors to equalise in each run of the smallest design that tells them apart; in the last, none.

    Raises:
        ValueError: there are more factors than the largest design has columns.
    """
    columns = next((size for size in _GENERATORS if len(factors) <= size), None)
    if columns is None:
        raise ValueError(f"There are {len(factors)} factors, and 12 runs tell 11 apart; leave some out.")
    pattern = _GENERATORS[columns]
    rows = [
        frozenset(name for at, name in enumerate(factors) if pattern[(at - shift) % columns])
        for shift in range(columns)
    ]
    return [*rows, frozenset()]


def block_of(factors: Sequence[str], blocks: int) -> list[Asked]:
    """The runs of a block: the plain launch, the design, and the other launch with everything equalised.

    The first and the last are made twice where there are too few blocks for intervals over the blocks.
    """
    times = 1 if by_blocks(blocks) else 2
    found = [(False, frozenset[str]())] * times
    return [*found, *((True, names) for names in [*screening(factors), *[frozenset(factors)] * times])]


def shuffled(runs: Sequence[Asked], order: random.Random) -> list[Asked]:
    """The same runs in another order."""
    return order.sample(list(runs), len(runs))


def floors_by(twice: Sequence[tuple[Times, Times]]) -> dict[Measure, float]:
    """The noise floor of each measure, of plain runs made twice.

    Raises:
        ValueError: there are fewer than two pairs, or their times don't vary.
    """
    if len(twice) < 2:
        raise ValueError("An A/A test needs two pairs of plain runs; make more.")
    floors = noise_floors(twice)
    for name in MEASURES:
        if name not in floors:
            raise ValueError(
                f"Plain runs made twice don't differ in {name}, as no real times do; look at them."
            )
    return floors


def attributed(made: Sequence[Made], factors: Sequence[str], floors: Mapping[Measure, float]) -> Attribution:
    """What each factor adds to the other launch, and what is left when all of them are equalised.

    Raises:
        ValueError: a block lacks runs.
    """
    blocks: dict[int, list[Made]] = {}
    for each in made:
        blocks.setdefault(each.block, []).append(each)
    needed = Counter(block_of(factors, len(blocks)))
    for block, found in blocks.items():
        if lacking := (needed - Counter((each.other, each.equalised) for each in found)).total():
            raise ValueError(
                f"Block {block} lacks {lacking} of the {needed.total()} runs that tell the factors apart; "
                "make them."
            )
    terms = [UNEXPLAINED, *(Term(True, name) for name in factors)]
    runs = [
        Run(
            block=each.block,
            other=each.other,
            terms=frozenset(term for term in terms if each.other and term.factor not in each.equalised),
            times=each.times,
        )
        for each in made
    ]
    return attribute(runs, terms, [(term,) for term in terms], floors)


def name_of(cause: Cause) -> str:
    """Its factor, or that none covers it."""
    return cause.term.factor or NO_FACTOR
