"""A trial: floors, a fault of their size, runs in blocks, and what the attribution says of them."""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from experiments.analysis.attribution import MEASURES, Attribution, Measure
from experiments.analysis.statistics import Difference, simultaneous
from tests.blind.design import Made, attributed, block_of, floors_by, name_of, shuffled
from tests.blind.faults import Fault, Plain, Plan, sized
from tests.blind.launch import (
    IN_STEPS,
    RANKS,
    STEP_MS,
    STEPS,
    Job,
    Kind,
    Launch,
    ensure_possible,
    run,
    warm_up,
)
from training.data.prepare import Place, prepare
from training.local import local_spec

PAIRS: Final = 5  # of the A/A test, and of the runs that say what a fault costs
BATCH: Final = 8
VALIDATION: Final = 1000  # samples, unless the fault is in their evaluation
BUSY: Final = "while True: pass"

Say = Callable[[str], None]
Sizes = Mapping[Measure, Difference]
"""What a fault costs, by measure, each with its own 95 % interval; found without the attribution."""


@dataclass(frozen=True)
class Verdict:
    """A fault, and what was said of it."""

    plan: Plan
    fault: Fault
    floors_at: datetime  # when the noise floors were measured
    sizes: Sizes
    found: Attribution

    @property
    def right(self) -> bool:
        """Whether the fault was named, with an interval that holds its size."""
        named, size = self.found.named, self.size
        if named is None or size is None or name_of(named) != self.plan.answer:
            return False
        return named.holds(size.mean, 0.0 if size.high is None else size.high - size.mean)

    @property
    def false(self) -> bool:
        """Whether something else was named."""
        named = self.found.named
        return named is not None and name_of(named) != self.plan.answer

    @property
    def size(self) -> Difference | None:
        """What the fault costs in the named measure; None if that is not known, or nothing was named."""
        named = self.found.named
        return self.sizes.get(named.measure) if named else None


def made_up_job(kind: Kind, place: Path, validation: int = VALIDATION) -> Job:
    """A job of two ranks, in the folder `place`; a simulated one has made-up sentences."""
    place.mkdir(exist_ok=True)
    bytecode = place / "bytecode"
    if kind == "null-step":
        return Job(kind, bytecode)
    draw, reviews = random.Random(0), place / "made-up.csv"
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(60)]
    train = STEPS * BATCH * RANKS
    with reviews.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "source"])
        for number in range(2 * (train + validation)):
            rows.writerow([" ".join(draw.choices(words, k=draw.randint(3, 12))), number % 2, "imdb"])
    work = {"workers": RANKS, "epochs": 1, "batch_per_worker": BATCH, "simulated_step_ms": STEP_MS}
    settings = {
        "data": {"train": train, "validation": validation, "max_length": 16, "vocabulary": 300},
        "work": work | {"checkpoint_every_epochs": 0},
        "conditions": {"threads": 1},
    }
    data, finish = local_spec(settings)
    prepared = prepare(data, Place(reviews=reviews), place / "data")
    return Job(kind, bytecode, finish(prepared.digest), prepared.path)


def trial(plan: Plan, place: Path, order: random.Random, say: Say) -> Verdict:
    """Measure noise floors, hide a fault of so many of them, make the runs, and ask the attribution.

    Runs of each block are in random order. The attribution is not told the fault.

    Args:
        plan: what is hidden, and what is equalised.
        place: a folder for the job.
        order: chance.
        say: is told what happens.

    Raises:
        UnavailableError: this machine can't have the fault.
        LaunchFailedError: a run did not end well.
    """
    ensure_possible(Launch(**{plan.name: 1.0}))
    job = made_up_job(plan.kind, place / plan.kind)
    say(
        f"the job: {plan.kind}, {plan.blocks} blocks, equalising {', '.join(plan.factors)}; the fault is "
        f"sized at {plan.floors:g} noise floors"
    )
    with _beside(plan.name):
        warm_up(job)
        at = datetime.now(UTC)
        floors, plain = floors_of(job, PAIRS, say)
        fault = sized(plan.name, floors, plain, plan.floors)
        if fault.name == "evaluation":
            sized_job = made_up_job(plan.kind, place / f"{plan.kind}-{fault.dose:.0f}", round(fault.dose))
            job = replace(sized_job, bytecode=job.bytecode)
        made, waited = [], list[float]()
        sizes = {} if fault.name in IN_STEPS else sizes_of(fault, job, PAIRS, order)
        for block in range(plan.blocks):
            asked = shuffled(block_of(plan.factors, plan.blocks), order)
            for other, names in asked:
                launch = fault.launch.equalised(names) if other else Launch()
                outcome = run(launch, job, seed=block + 1)
                made.append(Made(block, other, names, outcome.times))
                waited += list(outcome.waited_ms.values())
            say(f"block {block + 1} of {plan.blocks}: {len(asked)} runs")
    if waited:
        sizes = {"step_ms": simultaneous([waited])[0]}
    return Verdict(plan, fault, at, sizes, attributed(made, plan.factors, floors))


def floors_of(job: Job, pairs: int, say: Say) -> tuple[dict[Measure, float], Plain]:
    """The noise floors of this machine now, by plain runs made twice, and what these runs took."""
    runs = [(run(Launch(), job, seed=pair + 1), run(Launch(), job, seed=pair + 1)) for pair in range(pairs)]
    floors = floors_by([(first.times, again.times) for first, again in runs])
    say("noise floors: " + ", ".join(f"{name} {floor:.3f}" for name, floor in floors.items()))
    return floors, Plain.of([each for pair in runs for each in pair])


def sizes_of(fault: Fault, job: Job, pairs: int, order: random.Random) -> Sizes:
    """What a fault costs in each measure: pairs of a run with it and a plain one, in random order.

    Of a fault that is nothing but waits in the steps, it is what ranks note of them that counts, in the runs
    of the trial: see `trial`.
    """
    costs: list[dict[Measure, float]] = []
    for pair in range(pairs):
        both = [fault.launch, Launch()]
        order.shuffle(both)
        times = {launch: run(launch, job, seed=pair + 1).times for launch in both}
        with_it, without = times[fault.launch], times[Launch()]
        costs.append({name: with_it[name] - without[name] for name in MEASURES})
    found = [simultaneous([[cost[name] for cost in costs]])[0] for name in MEASURES]
    return dict(zip(MEASURES, found, strict=True))


def described(verdict: Verdict) -> str:
    """What was injected and what was said of it, for a person at a terminal."""
    lines = [f"injected: {verdict.fault.name}, dose {verdict.fault.dose:.3g}"]
    lines += [f"it costs: {name} {interval(size)}" for name, size in verdict.sizes.items()]
    for at, cause in enumerate(verdict.found.causes[:4]):
        cost = cause.cost
        said = "not claimed" if not cause.claimed else "claimed" if at else "named"
        lines.append(
            f"{said}: {name_of(cause)}, {cause.measure} {interval(cost)}, noise floor {cost.floor:.3f}"
        )
    if verdict.right:
        return "\n".join([*lines, "verdict: right"])
    if verdict.found.named is None:
        return "\n".join([*lines, "verdict: nothing was named"])
    wrong = "another cause was named" if verdict.false else "the interval does not hold the size"
    return "\n".join([*lines, f"verdict: {wrong}"])


def interval(found: Difference) -> str:
    """A cost with its interval; without one where its values don't vary."""
    ends = "" if found.low is None else f" ({found.low:.3f} to {found.high:.3f})"
    return f"{found.mean:.3f}{ends}"


@contextmanager
def _beside(name: str) -> Iterator[None]:
    """For a fault of niceness, a busy process for each core: alone, no rank needs any."""
    number = len(os.sched_getaffinity(0)) if name == "niceness" else 0
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
