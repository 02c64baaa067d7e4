"""A trial: floors, a fault of their size, runs in blocks, and what the analysis says of them."""

from __future__ import annotations

import csv
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from experiments.analysis.statistics import Difference, simultaneous
from tests.blind.attribution import MEASURES, Attribution, Run, attribute, noise_floors, screening
from tests.blind.faults import Fault
from tests.blind.launch import IN_STEPS, RANKS, Job, Launch, run
from training.data.prepare import Place, prepare
from training.local import local_spec

BLOCKS: Final = 2
PAIRS: Final = 5  # of the A/A test, and of the runs that say what a fault costs
STEPS: Final = 150
STEP_MS: Final = 8.0
BATCH: Final = 8
VALIDATION: Final = 4000  # samples: replicated, their evaluation takes about a second longer
BUSY: Final = "while True: pass"

Say = Callable[[str], None]
Sizes = Mapping[str, Difference]
"""What a fault costs, by measure, each with its own 95 % interval; found without the analysis."""


@dataclass(frozen=True)
class Verdict:
    """A fault, and what was said of it."""

    fault: Fault
    sizes: Sizes
    found: Attribution

    @property
    def right(self) -> bool:
        """Whether the fault was named, with an interval that holds its size."""
        named, size = self.found.named, self.size
        if named is None or size is None or named.name != self.fault.answer:
            return False
        return named.holds(size.mean, 0.0 if size.high is None else size.high - size.mean)

    @property
    def false(self) -> bool:
        """Whether something else was named."""
        named = self.found.named
        return named is not None and named.name != self.fault.answer

    @property
    def size(self) -> Difference | None:
        """What the fault costs in the named measure; None if that is not known, or nothing was named."""
        named = self.found.named
        return self.sizes.get(named.measure) if named else None


def made_up_job(place: Path) -> Job:
    """A simulated job of two ranks on made-up sentences, prepared in the folder `place`."""
    draw, reviews = random.Random(0), place / "made-up.csv"
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(60)]
    train = STEPS * BATCH * RANKS
    with reviews.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "source"])
        for number in range(2 * (train + VALIDATION)):
            rows.writerow([" ".join(draw.choices(words, k=draw.randint(3, 12))), number % 2, "imdb"])
    work = {"workers": RANKS, "epochs": 1, "batch_per_worker": BATCH, "simulated_step_ms": STEP_MS}
    settings = {
        "data": {"train": train, "validation": VALIDATION, "max_length": 16, "vocabulary": 300},
        "work": work | {"checkpoint_every_epochs": 0},
        "conditions": {"threads": 1},
    }
    data, finish = local_spec(settings)
    prepared = prepare(data, Place(reviews=reviews), place / "data")
    return Job(finish(prepared.digest), prepared.path)


def floors_of(job: Job, pairs: int, say: Say) -> dict[str, float]:
    """The noise floors of this machine now, by plain runs made twice after one that warms up."""
    run(Launch(), job, seed=1)
    runs = [
        Run(pair, False, frozenset(), run(Launch(), job, seed=pair + 1).times)
        for pair in range(pairs)
        for _ in range(2)
    ]
    floors = noise_floors(runs)
    say("noise floors: " + ", ".join(f"{name} {floor:.3f}" for name, floor in floors.items()))
    return floors


def sizes_of(fault: Fault, job: Job, pairs: int, order: random.Random) -> Sizes:
    """What a fault costs in each measure: pairs of a run with it and a plain one, in random order.

    Of a fault that is nothing but waits in the steps, it is what ranks note of them that counts, in the runs
    of the trial: see `trial`.
    """
    costs: list[dict[str, float]] = []
    for pair in range(pairs):
        both = [fault.launch, Launch()]
        order.shuffle(both)
        times = {launch: run(launch, job, seed=pair + 1).times for launch in both}
        with_it, without = times[fault.launch], times[Launch()]
        costs.append({name: with_it[name] - without[name] for name in MEASURES})
    found = [simultaneous([[cost[name] for cost in costs]])[0] for name in MEASURES]
    return dict(zip(MEASURES, found, strict=True))


def trial(
    fault: Fault,
    floors: Mapping[str, float],
    factors: Sequence[str],
    job: Job,
    blocks: int,
    order: random.Random,
    say: Say,
) -> Verdict:
    """Make the runs of every block in random order, and ask the analysis, which is not told the fault."""
    runs, everything, waited = [], frozenset(factors), []
    with _beside(fault):
        sizes = {} if fault.name in IN_STEPS else sizes_of(fault, job, PAIRS, order)
        for block in range(blocks):
            asked = [(False, frozenset[str]())] * 2
            asked += [(True, names) for names in (*screening(factors), everything, everything)]
            order.shuffle(asked)
            for other, names in asked:
                launch = fault.launch.equalised(names) if other else Launch()
                outcome = run(launch, job, seed=block + 1)
                runs.append(Run(block, other, names, outcome.times))
                waited += list(outcome.waited_ms.values())
            say(f"block {block + 1} of {blocks}: {len(asked)} runs")
    if waited:
        sizes = {"step_ms": simultaneous([waited])[0]}
    return Verdict(fault, sizes, attribute(runs, factors, floors))


def described(verdict: Verdict) -> str:
    """What was injected and what was said of it, for a person at a terminal."""
    lines = [f"injected: {verdict.fault.name}, dose {verdict.fault.dose:.3g}"]
    lines += [f"it costs: {name} {interval(size)}" for name, size in verdict.sizes.items()]
    for cause in verdict.found.causes[:4]:
        cost = cause.cost
        lines.append(
            f"{'named' if cause is verdict.found.named else 'claimed' if cause.claimed else 'not claimed'}: "
            f"{cause.name}, {cause.measure} {interval(cost)}, noise floor {cost.floor:.3f}"
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
def _beside(fault: Fault) -> Iterator[None]:
    """For a fault of niceness, as many busy processes as there are ranks: alone, no process needs any."""
    command = [sys.executable, "-c", BUSY]
    number = RANKS if fault.name == "niceness" else 0
    busy = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
