"""A simulated accelerator takes its time, takes the same batches as training, and trains nothing."""

from __future__ import annotations

import time

import pytest
import torch
from pydantic import ValidationError

from tests.unit.training.training_helpers import Datasets, Run, data_spec, load, run_spec
from training.simulated import signal, wait_until
from training.spec import Conditions, RunSpec


def test_a_simulated_run_takes_its_time_and_ends_with_digests_of_what_was_fed(
    run: Run, datasets: Datasets
) -> None:
    data = data_spec()
    prepared = datasets(data)
    found = {}
    for name, seed, step_ms, conditions in (
        ("one", 1, 30.0, Conditions()),
        ("longer", 1, 60.0, Conditions(tokenizing="in_loop", evaluation="replicated", printed_lines=1)),
        ("another seed", 2, 30.0, Conditions()),
    ):
        spec = run_spec(prepared, data, workers=2, epochs=2, seed=seed, simulated_step_ms=step_ms)
        out, statuses = run(spec.model_copy(update={"conditions": conditions}), prepared.path)
        assert statuses == [0, 0]
        found[name] = (spec, load(out / "result.json"), load(out / "rank-0.json"), out)
    spec, result, rank, out = found["one"]
    assert spec.run_id.startswith("test-simulated-w2-e2-s1-")
    samples = sum(
        -(-min(spec.work.global_batch, data.train - at) // 2)
        for at in range(0, data.train, spec.work.global_batch)
    )
    wanted = 2 * samples * 0.030 / spec.work.batch_per_worker
    assert wanted <= rank["phases"]["forward"] < wanted + 0.2
    # Nothing but how many samples were evaluated.
    validation = {name for name in result["epochs"][-1] if name.startswith("validation_")}
    assert validation == {"validation_count"} and result["epochs"][-1]["validation_count"] == data.validation
    assert rank["parameters"] == 1024
    steps = rank["step_times"]
    assert steps["steps"] == rank["steps"] and steps["median_ms"] >= 30.0
    assert steps["median_ms"] <= steps["p95_ms"] <= steps["p99_ms"] <= steps["longest_ms"]
    assert "a simulated accelerator, 30 ms a step" in (out / "progress.jsonl").read_text(encoding="utf-8")
    assert found["longer"][1]["weights_digest"] == result["weights_digest"]
    assert found["another seed"][1]["weights_digest"] != result["weights_digest"]


def test_its_number_depends_on_every_value_of_a_batch() -> None:
    batch = {"ids": torch.arange(12).reshape(3, 4), "pixels": torch.rand(3, 5)}
    before = signal(batch)
    for name in batch:
        changed = {key: tensor.clone() for key, tensor in batch.items()}
        changed[name][2, 1] += 1
        assert signal(changed) != before
    for other in (
        batch["ids"].flip(0),
        batch["ids"] + 1009,
        batch["ids"].double(),
        batch["ids"].reshape(4, 3),
    ):
        assert signal(batch | {"ids": other}) != before
    assert -1 <= float(before) <= 1 and signal(dict(reversed(batch.items()))) == before


def test_a_wait_ends_when_it_should() -> None:
    for seconds in (0.0005, 0.01):
        moment = time.perf_counter() + seconds
        wait_until(moment)
        assert time.perf_counter() >= moment
    began = time.perf_counter()
    wait_until(began - 1)
    assert time.perf_counter() - began < 0.1


@pytest.mark.parametrize(
    "conditions",
    [{"save": "last"}, {"predictions": True}, {"bits": "portable"}],
    ids=lambda each: next(iter(each)),
)
def test_what_is_of_a_model_is_refused(datasets: Datasets, conditions: dict[str, object]) -> None:
    spec = run_spec(datasets(data_spec()), data_spec(), simulated_step_ms=10.0).model_dump()
    with pytest.raises(ValidationError, match="is of a model, and a simulated accelerator"):
        RunSpec.model_validate(spec | {"conditions": conditions})


@pytest.mark.parametrize(
    "work",
    [
        {"precision": "bf16"},
        {"gradient_sync": "rows"},
        {"dropout_draws": "16_bit"},
        {"activation_checkpointing": True},
    ],
    ids=lambda each: next(iter(each)),
)
def test_work_of_a_model_is_refused(datasets: Datasets, work: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=rf"{next(iter(work))}.* is of a model, and a simulated"):
        run_spec(datasets(data_spec()), data_spec(), simulated_step_ms=10.0, **work)
