"""Two workers of a core each, beside what one does alone and what two do that exchange nothing.

Each worker is a process with one thread on a core of its own; they meet over gloo. All keep freed memory, as
ranks of a run do. A step's time is that of the steps after the first few, without evaluation. Workers that
exchange nothing differ in speed: theirs is the time in which each of them takes one step on average (the
harmonic mean). What they would take had each waited in every step for the slower one says what waiting costs
by itself, with nothing to exchange.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import harmonic_mean, mean
from typing import Any, Final, NamedTuple

from experiments.util.words import listed
from tests.benchmarks.engine import Alone, ProcessorTime, by_the_engine, compute_as_a_rank, opened
from tests.benchmarks.links import LOOPBACK, RATE, Place, limited_link, why_no_limit
from tests.benchmarks.plain_ddp import by_plain_ddp
from tests.benchmarks.plan import Plan, in_turns
from tests.benchmarks.results import Comparison, Named, Part, Sample, compare
from tests.benchmarks.side_by_side import FORK, side_by_side
from tests.benchmarks.tables import said
from tests.rank_processes import rank_variables
from training.distributed.collective import join, leave, wait_for_all
from training.spec import Work
from training.util.network import free_port
from training.weights import weights_digest

WORKERS: Final = 2
NAME: Final = "two-workers"
BY_THEMSELVES: Final = "nothing exchanged"
ONE: Final = "one worker"
CEILING: Final = "two independent workers"
WAITING: Final = "the same, if each waited for the other"
NO_LIMIT: Final = "no link limit"
PLAIN: Final = "DDP without the engine"
SYNCS: Final = ("dense", "rows", "auto", "bf16", "fp16", "powersgd")
EXACT: Final = (PLAIN, "dense", "rows", "auto")  # which must end with the same bits
AIMED: Final = "auto"  # the way that is to reach the aims
AIMS: Final = {NO_LIMIT: 0.97, RATE: 0.94}  # shares of the ceiling
SHARE: Final = "share of the ceiling"
EFFICIENCY: Final = "plain efficiency"
NOT_COUNTED: Final = 3  # first steps, at least: buckets are arranged, memory is taken


class Trained(NamedTuple):
    """What one worker did."""

    step_seconds: list[float]  # of those that count
    phases: dict[str, float]  # seconds of those steps; empty: not known
    processor: ProcessorTime | None  # of those steps
    weights: str  # their digest


def measure(data: Path, plan: Plan, syncs: Sequence[str] = SYNCS) -> Part:
    """Train all of them on a data set, round by round.

    Args:
        data: folder of the prepared data set.
        plan: how much.
        syncs: ways of exchanging gradients (`gradient_sync`).

    Raises:
        DataError: the data set is not there, or too small.
        RuntimeError: a training failed, or the workers ended with different weights.
        CalledProcessError: the limited link can't be made.
    """
    samples: list[Sample] = []
    notes: list[str] = []
    if len(plan.cores) < WORKERS:
        notes.append(f"{NAME} is left out: it needs {WORKERS} cores, and this process may use one.")
    else:
        with ExitStack() as stack:
            links = {NO_LIMIT: (LOOPBACK, LOOPBACK)}
            if why := why_no_limit():
                notes.append(why)
            else:
                links[RATE] = stack.enter_context(limited_link())
            calls = _calls(data, plan, links, syncs)
            for number, (group, name) in in_turns(list(calls), plan.rounds):
                workers = calls[group, name]()
                trained = side_by_side(workers, plan.cores[: len(workers)])
                found = [(name, _of_all(trained))]
                if name == CEILING:
                    found.append((WAITING, {"ms": _ms_of_the_slower(trained)}))
                for each, figures in found:
                    samples.append(Sample(group=group, name=each, round=number, **figures))
                    print(said(samples[-1]), flush=True)
    samples.sort(key=lambda each: each.round)
    equal, different = equal_weights(samples)
    return Part(
        name=NAME,
        settings=plan.settings(),
        samples=samples,
        comparisons=list(_compared(samples)),
        notes=[*notes, *equal, *different],
        broken=different,
    )


def equal_weights(samples: Sequence[Sample]) -> tuple[list[str], list[str]]:
    """Sentences on the links over which the ways that must end with the same weights did, and did not."""
    equal, different = [], []
    for group in dict.fromkeys(each.group for each in samples if each.name in EXACT):
        exact = [each for each in samples if each.group == group and each.name in EXACT]
        names = listed(list(dict.fromkeys(each.name for each in exact)))
        if len({each.weights for each in exact}) == 1:
            equal.append(f"{group}: the weights of {names} are equal to the last bit.")
        else:
            different.append(f"{group}: the weights of {names} DIFFER.")
    return equal, different


def _calls(
    data: Path, plan: Plan, links: Mapping[str, tuple[Place, Place]], syncs: Sequence[str]
) -> dict[Named, Callable[[], list[Callable[[], Trained]]]]:
    """What is to be trained side by side, by group and name; each makes it anew."""
    alone = plan.work_on(data)
    calls: dict[Named, Callable[[], list[Callable[[], Trained]]]] = {
        (BY_THEMSELVES, name): partial(_apart, data, alone, workers)
        for name, workers in ((ONE, 1), (CEILING, WORKERS))
    }
    for group, places in links.items():
        calls[group, PLAIN] = partial(_joined, _plainly, data, plan.work_on(data, workers=WORKERS), places)
        for sync in syncs:
            work = plan.work_on(data, workers=WORKERS, gradient_sync=sync)
            calls[group, sync] = partial(_joined, _trained, data, work, places)
    return calls


def _apart(data: Path, work: Work, workers: int) -> list[Callable[[], Trained]]:
    """Workers that exchange nothing, and begin together."""
    barrier = FORK.Barrier(workers)

    def train() -> Trained:
        compute_as_a_rank(work)
        return _trained(data, work, Alone(), barrier.wait)

    return [train] * workers


def _joined(
    how: Callable[[Path, Work, Alone], Trained], data: Path, work: Work, places: Sequence[Place]
) -> list[Callable[[], Trained]]:
    """Ranks that exchange gradients."""
    port = free_port()

    def train(rank: int) -> Trained:
        places[rank].enter()
        os.environ |= rank_variables(rank, WORKERS, port) | {"MASTER_ADDR": places[0].address}
        compute_as_a_rank(work)
        session = Alone(rank=rank, world_size=WORKERS)
        join(session)
        found = how(data, work, session)
        wait_for_all(session)
        leave(session)
        return found

    return [partial(train, rank) for rank in range(WORKERS)]


def _trained(data: Path, work: Work, session: Alone, ready: Callable[[], object] = lambda: None) -> Trained:
    first = _first_that_counts(work)
    training = by_the_engine(opened(work, data), session, ready, first)
    counted = list(training.step_seconds)[first:]
    weights = weights_digest(training.model.state_dict())
    return Trained(counted, session.phases, session.processor, weights)


def _plainly(data: Path, work: Work, session: Alone) -> Trained:
    seconds, model = by_plain_ddp(opened(work, data), session)
    return Trained(seconds[_first_that_counts(work) :], {}, None, weights_digest(model.state_dict()))


def _first_that_counts(work: Work) -> int:
    """The step, from 0; in the first tenth PowerSGD sends all."""
    return max(NOT_COUNTED, work.steps // 10)


def _ms_of_the_slower(found: Sequence[Trained]) -> float:
    """Milliseconds of the slower worker in each step, on average."""
    slower: list[float] = [max(both) for both in zip(*(each.step_seconds for each in found), strict=True)]
    return 1000 * mean(slower)


def _of_all(found: Sequence[Trained]) -> dict[str, Any]:
    """Milliseconds a step, also by phase, and the weights that all workers ended with, as in a sample.

    Raises:
        RuntimeError: they ended with different weights.
    """
    digests = {each.weights for each in found}
    if len(digests) > 1:
        raise RuntimeError("Two workers ended the same training with different weights.")
    steps = len(found[0].step_seconds)
    return {
        "ms": 1000 * harmonic_mean([mean(each.step_seconds) for each in found]),
        "phases": _ms_a_step([each.phases for each in found], steps),
        "processor": _ms_a_step([each.processor._asdict() for each in found if each.processor], steps),
        "weights": digests.pop(),
    }


def _ms_a_step(seconds: Sequence[Mapping[str, float]], steps: int) -> dict[str, float] | None:
    """Milliseconds a step, as a mean over the workers; None: nothing is known."""
    names = dict.fromkeys(name for each in seconds for name in each)
    return {name: 1000 * mean(each.get(name, 0.0) for each in seconds) / steps for name in names} or None


def _compared(samples: Sequence[Sample]) -> Iterator[Comparison]:
    for group, name in dict.fromkeys((each.group, each.name) for each in samples):
        if name != ONE:
            if name != CEILING:
                aim = AIMS.get(group) if name == AIMED else None
                yield compare(samples, (group, name), (BY_THEMSELVES, CEILING), SHARE, aim)
            yield compare(samples, (group, name), (BY_THEMSELVES, ONE), EFFICIENCY)
