"""A trial: floors, a fault of their size, runs in blocks, and what the analysis says of them."""

from __future__ import annotations

import csv
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.blind.attribution import Attribution, Run, attribute, noise_floors, screening
from tests.blind.faults import Fault, sized
from tests.blind.launch import RANKS, Job, Launch, run
from training.data.prepare import Place, prepare
from training.local import local_spec

BLOCKS: Final = 5
STEPS: Final = 150
STEP_MS: Final = 8.0
BATCH: Final = 8
VALIDATION: Final = 4000  # samples: replicated, their evaluation takes about a second longer
BUSY: Final = "while True: pass"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """A fault, and what was said of it."""

    fault: Fault
    found: Attribution

    @property
    def right(self) -> bool:
        """Whether the fault was named, with an interval that holds its size."""
        named = self.found.named
        return named is not None and named.name == self.fault.answer and named.holds(self.size)

    @property
    def false(self) -> bool:
        """Whether something else was named."""
        named = self.found.named
        return named is not None and named.name != self.fault.answer

    @property
    def size(self) -> float:
        """What the fault costs in the named measure: its dose, or the other launch minus the plain one."""
        named = self.found.named
        assert named is not None
        set_by_dose = self.fault.size_ms if named.measure == "step_ms" else None
        return set_by_dose if set_by_dose is not None else self.found.total[named.measure].mean


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


def floors_of(job: Job, blocks: int, say: Say) -> dict[str, float]:
    """The noise floors of this machine now, by plain runs made twice after one that warms up."""
    run(Launch(), job, seed=1)
    runs = [
        Run(block, False, frozenset(), run(Launch(), job, seed=block + 1))
        for block in range(blocks)
        for _ in range(2)
    ]
    floors = noise_floors(runs)
    say("noise floors: " + ", ".join(f"{name} {floor:.3f}" for name, floor in floors.items()))
    return floors


def trial(
    fault: Fault, factors: Sequence[str], job: Job, blocks: int, order: random.Random, say: Say
) -> Verdict:
    """Make the runs of every block in random order, and ask the analysis, which is not told the fault."""
    runs, everything = [], frozenset(factors)
    with _beside(fault):
        for block in range(blocks):
            asked = [(False, frozenset[str]())] * 2
            asked += [(True, names) for names in (*screening(factors), everything, everything)]
            order.shuffle(asked)
            for other, names in asked:
                launch = fault.launch.equalised(names) if other else Launch()
                runs.append(Run(block, other, names, run(launch, job, seed=block + 1)))
            say(f"block {block + 1} of {blocks}: {len(asked)} runs")
    return Verdict(fault, attribute(runs, factors))


def blind_test(
    name: str, factors: Sequence[str], job: Job, blocks: int, seed: int, times: float, say: Say
) -> Verdict:
    """Size a fault by this machine's noise floors, and have it named.

    Args:
        name: of the fault.
        factors: those that are equalised.
        job: what both launches do.
        blocks: of runs; the A/A test before them has as many pairs.
        seed: of the order of the runs.
        times: noise floors that the fault costs.
        say: takes each line of progress.

    Raises:
        LaunchFailedError, UnavailableError: see `tests.blind.launch.run`.
        ValueError: there is no such fault.
    """
    fault = sized(name, floors_of(job, blocks, say), times)
    return trial(fault, factors, job, blocks, random.Random(seed), say)


def described(verdict: Verdict) -> str:
    """What was injected and what was said of it, for a person at a terminal."""
    lines = [f"injected: {verdict.fault.name}, dose {verdict.fault.dose:.3g}"]
    for cause in verdict.found.causes[:4]:
        cost = cause.cost
        lines.append(
            f"{'named' if cause is verdict.found.named else 'claimed' if cause.claimed else 'not claimed'}: "
            f"{cause.name}, {cause.measure} {cost.mean:.3f} ({cost.low:.3f} to {cost.high:.3f}), "
            f"noise floor {cost.floor:.3f}"
        )
    if verdict.found.named:
        lines.append(f"size to hold: {verdict.size:.3f}")
    if verdict.right:
        return "\n".join([*lines, "verdict: right"])
    if verdict.found.named is None:
        return "\n".join([*lines, "verdict: nothing was named"])
    wrong = "another cause was named" if verdict.false else "the interval does not hold the size"
    return "\n".join([*lines, f"verdict: {wrong}"])


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
