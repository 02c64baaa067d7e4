"""The cost of recording: the same training with every figure kept, and with none."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.engine import Alone, by_the_engine, compute_as_a_rank, opened
from tests.benchmarks.plan import Plan, in_turns
from tests.benchmarks.results import Part, Sample, compare
from tests.benchmarks.side_by_side import side_by_side
from tests.benchmarks.tables import said
from training.metrics.figures import Figures
from training.spec import Work

GROUP: Final = "figures"
KEPT: Final = "kept"
DROPPED: Final = "dropped"
COST: Final = "times as fast as with figures kept"


def measure(data: Path, plan: Plan) -> Part:
    """Train with and without figures, round by round, on one core.

    Args:
        data: folder of the prepared data set.
        plan: how much.

    Raises:
        DataError: the data set is not there, or too small.
        RuntimeError: a training failed.
    """
    samples, work = [], plan.work_on(data)
    for number, name in in_turns((KEPT, DROPPED), plan.rounds):
        call = partial(_ms, data, work, keeps=name == KEPT)
        (ms,) = side_by_side([call], plan.cores[:1])
        samples.append(Sample(group=GROUP, name=name, round=number, ms=ms))
        print(said(samples[-1]), flush=True)
    return Part(
        name="recording",
        settings=plan.settings(),
        samples=sorted(samples, key=lambda each: each.round),
        comparisons=[compare(samples, (GROUP, DROPPED), (GROUP, KEPT), COST)],
        notes=[],
    )


def _ms(data: Path, work: Work, *, keeps: bool) -> float:
    compute_as_a_rank(work)
    with tempfile.TemporaryDirectory() as folder:
        session = Alone(Figures(Path(folder)) if keeps else None)
        figures = {"epochs": work.epochs, "steps_per_epoch": work.steps_per_epoch, "world_size": 1}
        session.report("start", **figures, parameters=0, model="", data="", metric="accuracy")
        seconds = by_the_engine(opened(work, data), session).step_seconds
        session.close()
    return 1000 * sum(seconds) / len(seconds)
