"""The faults, and how much of each: sized by the noise floors that an A/A of this machine just gave."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.blind.attribution import UNEXPLAINED
from tests.blind.launch import FACTORS, Launch

FLOORS: Final = 3.0  # noise floors that a fault costs
ALLOCATIONS: Final = 1.0  # blocks as large as the weights that a step asks for outside its wait
MESSAGES: Final = 10.0  # that rank 0 exchanges with the meeting point in train_s, one after another


@dataclass(frozen=True)
class Fault:
    """One dose of one factor, or of what no factor covers."""

    name: str
    dose: float

    @property
    def launch(self) -> Launch:
        """The plain launch with this fault."""
        return Launch(**{self.name: self.dose})

    @property
    def answer(self) -> str:
        """What the analysis must name."""
        return self.name if self.name in FACTORS else UNEXPLAINED


def draw(seed: int) -> str:
    """The name of one of the ten faults that a factor covers."""
    return random.Random(seed).choice(FACTORS)


def sized(name: str, floors: Mapping[str, float], times: float = FLOORS) -> Fault:
    """A fault of so many times the noise floor.

    The last four doses are fixed: what they cost can't be set.

    Args:
        name: of a factor, or `hidden`.
        floors: noise floors by measure.
        times: how many of them.

    Raises:
        ValueError: there is no such fault.
    """
    step, fixed = floors["step_ms"] * times, floors["fixed_s"] * times
    doses = {
        "tokenizing": step,
        "printed_lines": step,
        "hook": step,
        "hidden": step,
        "allocator": step / ALLOCATIONS,
        "proxy": fixed * 1000 / MESSAGES,
        "threads": max(2 * step, 4.0),
        "cgroup": 0.6,
        "niceness": 10.0,
        "environment": 1.0,
        "evaluation": 1.0,
    }
    if name not in doses:
        raise ValueError(f"There is no fault named {name}: take one of {', '.join(sorted(doses))}.")
    return Fault(name, doses[name])
