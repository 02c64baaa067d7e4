"""What a step trains on and evaluates, and whether it is like one of the dissertation's."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.analysis.step_samples import Samples, samples_a_step, samples_of_a_run, unlike_published
from tests.unit.experiments.made_up_records import spec
from training.spec import RunSpec


def changed(workers: int = 2, conditions: dict[str, Any] | None = None, **work: Any) -> RunSpec:
    fields = spec("ddp", workers).model_dump()
    fields["work"] |= work
    fields["conditions"] |= conditions or {}
    return RunSpec.model_validate(fields)


@pytest.mark.parametrize(
    ("evaluation", "evaluated"), [("sharded", 1000.0), ("replicated", 2000.0), ("none", 0.0)]
)
def test_evaluation_is_shared_out_made_by_every_rank_or_left_out(evaluation: str, evaluated: float) -> None:
    one = changed(conditions={"evaluation": evaluation})  # 4,000 to train, 1,000 to validate, two epochs
    assert samples_of_a_run(one) == Samples(trained=4000.0, evaluated=evaluated)
    assert one.work.steps == 126
    assert samples_a_step(one) == Samples(trained=4000 / 126, evaluated=evaluated / 126)


def test_of_the_dissertations_own_work_a_step_trains_on_as_many_as_it_evaluates() -> None:
    data = {"train": 25_000, "validation": 25_000, "seed": 1, "max_length": 128}
    for workers in (1, 2):
        step = samples_a_step(changed(workers, data=data, epochs=20))
        assert step.trained == step.evaluated == pytest.approx(32, abs=0.05)


@pytest.mark.parametrize(
    ("work", "unlike"),
    [
        ({}, None),
        ({"batch_per_worker": 8}, "batch"),
        ({"slots_per_worker": 2}, "slots"),
        ({"workload": "script", "data": {"script": "a.py", "train": 500}, "model": {}}, "workload"),
    ],
)
def test_only_a_step_of_32_reviews_of_one_rank_is_the_dissertations_kind(
    work: dict[str, Any], unlike: str | None
) -> None:
    assert unlike_published(changed(**work)) == unlike
