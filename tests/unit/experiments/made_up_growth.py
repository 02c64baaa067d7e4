"""A made-up campaign of the matrix `growth`, whose steps cost what a test says."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.matrix.loading import load_matrix
from experiments.matrix.specification import make_specification
from experiments.records.record import StepTimes
from tests.unit.experiments.made_up_records import campaign, record
from training.spec import RunSpec

#: Milliseconds of each step, and for what it has, in the units of `experiments.analysis.scaling_model`.
COSTS: Final = {
    "fixed": 6.0,
    "flop": 9.0,
    "attention": 6.0,
    "parameters": 4.0,
    "bytes": 1.5,
    "rounds": 4.0,
    "link": 0.9,
}
Axes = Mapping[str, Any]


def parameters(specification: RunSpec) -> int:
    """Of a BERT, next to enough: embeddings of words and 512 positions, and the matrices of the layers."""
    model, data = specification.work.model.model_dump(), specification.work.data.model_dump()
    hidden = int(model["hidden"])
    layer = 4 * hidden**2 + 2 * hidden * int(model["intermediate"])
    return (int(data["vocabulary"]) + 512) * hidden + int(model["layers"]) * layer


def step_ms(specification: RunSpec, costs: Mapping[str, float] = COSTS) -> float:
    """By hand, for a BERT of which a rank trains with whole layers."""
    work, model = specification.work, specification.work.model.model_dump()
    hidden, length = int(model["hidden"]), work.data.tokens_per_sample or 0
    tokens, layers = work.batch_per_worker * length, int(model["layers"])
    products = 2 * (4 * hidden**2 + 2 * hidden * int(model["intermediate"])) + 4 * length * hidden
    ranks, rate = work.world_size, specification.conditions.link_rate
    mb = 4 * parameters(specification) * 2 * (ranks - 1) / ranks / 2**20
    on_link = mb * 2**20 * 8 / 1e9 * 1000 if rate == "1gbit" and work.workers > 1 else 0.0
    return (
        costs["fixed"]
        + costs["flop"] * 3 * layers * tokens * products / 1e9
        + costs["attention"] * layers * int(model["heads"]) * tokens * length / 1e6
        + costs["parameters"] * parameters(specification) / 1e6
        + costs["bytes"] * mb
        + costs["rounds"] * 2 * (ranks - 1)
        + costs["link"] * on_link
    )


def grown(
    results: Path,
    costs: Mapping[str, float] = COSTS,
    noise: float = 0.01,
    keep: Callable[[Axes], bool] = lambda _: True,
    change: Callable[[RunSpec], RunSpec] = lambda specification: specification,
    **ranks: Any,
) -> Campaign:
    """Its runs that are to be kept, each with `noise` of its steps, as a fraction.

    `change` applies to every specification, `ranks` to every rank of every record.
    """
    matrix, drawn = load_matrix("growth").on(2), random.Random(3)
    plan, records = [], []
    for axes in filter(keep, matrix.combinations()):
        one = make_specification(matrix, axes)
        digest = matrix.data_spec(axes).digest
        one = change(one.model_copy(update={"work": one.work.model_copy(update={"data_digest": digest})}))
        plan.append(PlannedRun(run_id=one.run_id, axes=axes, specification=one))
        median = step_ms(one, costs) * (1 + drawn.gauss(0, noise))
        steps = StepTimes(steps=40, median_ms=median, p95_ms=median, p99_ms=median, longest_ms=median)
        found = record(
            one.stack,
            one.work.workers,
            median * one.work.steps / 1000,
            60 + median * one.work.steps / 1000,
            one.work.seed,
            specification=one,
            run_id=one.run_id,
            work_digest=one.work.digest,
            conditions_digest=one.conditions.digest,
            epochs=[{"epoch": 1, "train_loss": 0.6, "seconds": 1.0, "validation_accuracy": 0.78}],
        )
        every = [
            rank.model_copy(update={"step_times": steps, "parameters": parameters(one)} | ranks)
            for rank in found.ranks
        ]
        records.append(found.model_copy(update={"ranks": every}))
    described = [
        {"digest": each} for each in dict.fromkeys(run.specification.work.data_digest for run in plan)
    ]
    return campaign(results, plan, records, dataset=described[0], datasets=described)
