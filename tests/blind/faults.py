"""The faults, and how much of each: sized by the noise floors that an A/A of this machine just gave."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.analysis.attribution import Measure
from tests.blind.design import NO_FACTOR
from tests.blind.launch import FACTORS_OF, RANKS, STEPS, Kind, Launch, Outcome

HIDDEN: Final = "hidden"  # what no factor covers
FLOORS: Final = (3.0, 3.0, 6.0)  # noise floors that a fault costs, drawn
ALLOCATIONS: Final = 1.0  # blocks as large as the weights that a step asks for outside its wait
MESSAGES: Final = 10.0  # that rank 0 exchanges with the meeting point in train_s, one after another
NICER: Final = 1.25  # by which the kernel divides a process's share for each degree of niceness
NICEST: Final = 19
SAMPLES: Final = (200, 20_000)  # fewest and most that a validation split gets
FEW: Final = (3, 5)  # factors to equalise, and blocks: enough for intervals over the blocks
ALL_IN: Final = 2  # blocks, where every factor is equalised


@dataclass(frozen=True)
class Plan:
    """What a trial hides in which job, and what it equalises."""

    kind: Kind
    name: str  # of the fault
    factors: tuple[str, ...]  # to equalise
    blocks: int
    floors: float = FLOORS[0]  # that the fault costs

    @property
    def answer(self) -> str:
        """What must be named."""
        return self.name if self.name in self.factors else NO_FACTOR


@dataclass(frozen=True)
class Fault:
    """One dose of one factor, or of what no factor covers."""

    name: str
    dose: float

    @property
    def launch(self) -> Launch:
        """The plain launch with this fault."""
        return Launch(**{self.name: self.dose})


@dataclass(frozen=True)
class Plain:
    """What plain runs take on average, from which doses follow."""

    train_s: float
    launch_s: float
    training_processor_s: float  # of all ranks
    launch_processor_s: float
    sample_s: float | None  # that a rank takes to evaluate a sample; None: it evaluates none

    @classmethod
    def of(cls, runs: Sequence[Outcome]) -> Plain:
        """The means of these runs."""

        def mean(values: Sequence[float]) -> float:
            return math.fsum(values) / len(values)

        samples = [each.sample_s for each in runs if each.sample_s is not None]
        return cls(
            train_s=mean([each.times["step_ms"] for each in runs]) * STEPS / 1000,
            launch_s=mean([each.times["launch_s"] for each in runs]),
            training_processor_s=mean([each.training_processor_s for each in runs]),
            launch_processor_s=mean([each.launch_processor_s for each in runs]),
            sample_s=mean(samples) if samples else None,
        )


def faults_of(kind: Kind) -> tuple[str, ...]:
    """The names of all faults that can be hidden in a job of this kind."""
    return (*FACTORS_OF[kind], HIDDEN)


def draw(seed: int, kind: Kind | None = None, name: str | None = None) -> Plan:
    """A plan by chance, but for what is given.

    In half of the plans all factors are equalised, in few blocks; in the others only three, the fault's among
    them, in enough blocks for intervals over the blocks. So either way to intervals is tried. One plan in
    three has a fault of twice the size.

    Raises:
        ValueError: a job of this kind can't have this fault.
    """
    chance = random.Random(f"{seed} {kind} {name}")
    kinds = [each for each in FACTORS_OF if name is None or name in faults_of(each)]
    job = kind if kind is not None else chance.choice(kinds)
    fault = name or chance.choice(faults_of(job))
    if fault not in faults_of(job):
        raise ValueError(
            f"A {job} job can't have the fault {fault}; take one of {', '.join(faults_of(job))}."
        )
    every = FACTORS_OF[job]
    if chance.random() < 0.5:
        return Plan(job, fault, every, ALL_IN, chance.choice(FLOORS))
    number, blocks = FEW
    own = [fault] if fault in every else []
    others = chance.sample([each for each in every if each != fault], number - len(own))
    equalised = tuple(each for each in every if each in (*own, *others))
    return Plan(job, fault, equalised, blocks, chance.choice(FLOORS))


def sized(name: str, floors: Mapping[Measure, float], plain: Plain, times: float = FLOORS[0]) -> Fault:
    """A fault of so many times the noise floor, in the measure in which it gets there first.

    Args:
        name: of a factor, or `hidden`.
        floors: noise floors by measure.
        plain: what plain runs take.
        times: how many floors.

    Raises:
        ValueError: there is no such fault, or plain runs don't show how large it must be.
    """
    step, fixed, launch = (floors[measure] * times for measure in ("step_ms", "fixed_s", "launch_s"))
    more_s = step * STEPS / 1000  # of train_s
    doses = {
        "tokenizing": step,
        "printed_lines": step,
        "hook": step,
        HIDDEN: step,
        "allocator": step / ALLOCATIONS,
        "proxy": fixed * 1000 / MESSAGES,
        "threads": max(2 * step, 4.0),
        "environment": launch,
        "cgroup": max(
            plain.launch_processor_s / (plain.launch_s + launch),
            plain.training_processor_s / (plain.train_s + more_s),
        ),
        "niceness": min(
            _niceness(plain.launch_processor_s / RANKS, launch),
            _niceness(plain.training_processor_s / RANKS, more_s),
        ),
    }
    if plain.sample_s:
        samples = fixed / plain.sample_s / (1 - 1 / RANKS)  # each rank also evaluates those of the others
        doses["evaluation"] = float(min(max(round(samples), SAMPLES[0]), SAMPLES[1]))
    if name not in doses:
        raise ValueError(f"There is no fault named {name} here: take one of {', '.join(sorted(doses))}.")
    return Fault(name, doses[name])


def _niceness(processor_s: float, more_s: float) -> float:
    """How much nicer a rank must be to take so much longer, if it shares a core with a busy process."""
    return float(min(max(math.ceil(math.log(1 + more_s / processor_s, NICER)), 1), NICEST))
