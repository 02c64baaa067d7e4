"""What a benchmark measured, as it is kept: every sample, and ratios with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from experiments.analysis.statistics import paired_ratio
from experiments.util.models import FiniteModel

Named = tuple[str, str]
"""The group and the name of samples."""

REACHED: Final = "yes"
MISSED: Final = "no"
OPEN: Final = "can't tell"


class Sample(FiniteModel):
    """One training in one round."""

    group: str  # what is set beside it, such as all of one maximum length
    name: str
    round: int  # from 1
    ms: float  # a step takes; of several workers, see `two_workers`
    loss: float | None = None  # of validation, after the last step
    accuracy: float | None = None  # the same
    weights: str | None = None  # their digest after the last step
    phases: dict[str, float] | None = None  # ms that a step takes in each; of several workers, their mean
    processor: dict[str, float] | None = None  # ms that it works in a step, by thread; the same


class Comparison(FiniteModel):
    """How many times as fast one is as another, in pairs of the same round, as a geometric mean."""

    group: str
    name: str
    against: str
    measure: str  # what the ratio says
    by_round: list[float]
    ratio: float
    low: float | None  # ends of the 95 % interval (t, of the log ratios); None with one round
    high: float | None
    aim: float | None  # the least that it should be; None: it has no aim


class Part(FiniteModel):
    """One of the benchmark's parts."""

    name: str
    settings: dict[str, int | float | str | bool]  # what all its samples have in common
    samples: list[Sample]
    comparisons: list[Comparison]
    notes: list[str]  # what was left out, and why; what else was found
    broken: list[str] = Field(default_factory=list)  # those of the notes that say that a promise did not hold


class Result(FiniteModel):
    """A whole benchmark."""

    began: str  # UTC
    machine: dict[str, str]
    data: list[str]  # digests of the data sets
    parts: list[Part]


def compare(
    samples: Sequence[Sample], of: Named, against: Named, measure: str, aim: float | None = None
) -> Comparison:
    """How many times as fast `of` is as `against`, round by round.

    Args:
        samples: among which both are, once in each of the same rounds.
        of: what the ratio is of.
        against: what it is compared with.
        measure: what the ratio says.
        aim: the least that it should be.

    Raises:
        ValueError: there are none, or they are not of the same rounds.
    """
    theirs, ours = _by_round(samples, against), _by_round(samples, of)
    if theirs.keys() != ours.keys():
        raise ValueError(f"{' '.join(of)} and {' '.join(against)} were not measured in the same rounds.")
    pairs = [(theirs[number], ours[number]) for number in sorted(ours)]
    found = paired_ratio(pairs)
    if found is None:
        raise ValueError(f"There are no samples of {' '.join(of)}.")
    return Comparison(
        group=of[0],
        name=of[1],
        against=against[1],
        measure=measure,
        by_round=[above / below for above, below in pairs],
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        aim=aim,
    )


def _by_round(samples: Sequence[Sample], of: Named) -> dict[int, float]:
    return {each.round: each.ms for each in samples if (each.group, each.name) == of}


def reached(found: Comparison) -> str | None:
    """Whether the aim was reached: by the whole interval, or by the ratio of a single round; None: no aim."""
    if found.aim is None:
        return None
    low, high = (found.ratio if end is None else end for end in (found.low, found.high))
    return REACHED if low >= found.aim else MISSED if high < found.aim else OPEN
