"""What a step is: how many samples a rank trains on and evaluates for it, and what makes two of a kind.

Evaluation is inside train_s. So a step that evaluates less is not the same step, however large its batch is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from training.registry import DEFAULT
from training.spec import RunSpec

Unlike = Literal["workload", "batch", "slots"]
BATCH: Final = 32  # of each worker, in the dissertation


@dataclass(frozen=True)
class Samples:
    """How many samples a rank trains on, and how many it evaluates, on average over the ranks."""

    trained: float
    evaluated: float


PUBLISHED: Final = Samples(BATCH, BATCH)
"""For a step of the dissertation: it evaluates as many reviews as it trains on, if its ranks share them."""


def samples_of_a_run(specification: RunSpec) -> Samples:
    """Those of a rank in the whole run."""
    work, how = specification.work, specification.conditions.evaluation
    trained = min(work.data.train, work.steps_per_epoch * work.global_batch) * work.epochs / work.world_size
    evaluations = 0 if how == "none" else -(-work.epochs // work.evaluate_every_epochs)
    evaluated = work.data.validation * evaluations / (work.world_size if how == "sharded" else 1)
    return Samples(trained, evaluated)


def samples_a_step(specification: RunSpec) -> Samples:
    """Those of a rank for each step."""
    whole, steps = samples_of_a_run(specification), specification.work.steps
    return Samples(whole.trained / steps, whole.evaluated / steps)


def unlike_published(specification: RunSpec) -> Unlike | None:
    """What makes a step of training another kind of step than the dissertation's; None: nothing.

    How much a step evaluates is not judged, nor whether it is simulated.
    """
    work = specification.work
    if work.workload != DEFAULT:
        return "workload"
    if work.batch_per_worker != BATCH:
        return "batch"
    return "slots" if work.slots_per_worker != 1 else None
