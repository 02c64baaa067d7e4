"""The condition `compile`: the same training but for rounding, and what it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training.training_helpers import TINY, Datasets, Run, data_spec, load, run_spec
from training.spec import RunSpec

ROOT = Path(__file__).parents[3]
MODEL = TINY | {"dropout": 0.2}


def compiled(spec: RunSpec, **changes: Any) -> RunSpec:
    conditions = spec.conditions.model_dump() | {"compile": "default"} | changes
    return RunSpec.model_validate(spec.model_dump() | {"conditions": conditions})


def test_training_differs_in_rounding_alone(run: Run, datasets: Datasets) -> None:
    """The same draws of dropout; nothing is left on the disk, and what was compiled before does not count."""
    torch.compile(lambda tensor: tensor + 1, backend="eager")(torch.ones(1))
    prepared, found, left = datasets(data_spec()), [], folders()
    spec = run_spec(prepared, data_spec(), epochs=2, model=MODEL, last_batch="drop")
    for each in (spec, compiled(spec)):
        out, statuses = run(each, prepared.path)
        assert statuses == [0]
        found.append(load(out / "result.json"))
    plain, ours = found
    assert ours["weights_digest"] != plain["weights_digest"]
    for mine, other in zip(ours["epochs"], plain["epochs"], strict=True):
        for loss in ("train_loss", "validation_loss"):
            assert mine[loss] == pytest.approx(other[loss], rel=1e-5)
    rank = load(out / "rank-0.json")
    # One to train, and two to evaluate 11 samples, of which the last three make a batch.
    assert rank["compiled"]["graphs"] == 3 and rank["compiled"]["breaks"] == []
    assert 0 < rank["compiled"]["seconds"] <= rank["phases"]["other"] < rank["train_s"]
    assert folders() == left


@pytest.mark.wide
@pytest.mark.parametrize(
    ("settings", "close"),
    [
        ({"precision": "bf16"}, 2e-3),
        ({"dropout_draws": "16_bit", "model": MODEL | {"last_layer": "first_token"}}, 1e-5),
        ({"gradient_accumulation": 2, "activation_checkpointing": True}, 1e-5),
    ],
)
def test_other_settings_go_with_it(
    run: Run, datasets: Datasets, settings: dict[str, Any], close: float
) -> None:
    prepared, losses = datasets(data_spec()), []
    spec = run_spec(prepared, data_spec(), **{"model": MODEL, "last_batch": "drop"} | settings)
    for each in (spec, compiled(spec)):
        out, statuses = run(each, prepared.path)
        assert statuses == [0]
        losses.append(load(out / "result.json")["epochs"][0]["train_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=close)
    assert load(out / "rank-0.json")["compiled"]["graphs"] >= 3


@pytest.mark.wide
def test_a_resumed_run_ends_with_the_same_bits(run: Run, datasets: Datasets, tmp_path: Path) -> None:
    prepared = datasets(data_spec())
    settings = {"model": MODEL, "epochs": 2, "checkpoint_every_steps": 1, "keep_checkpoints": 99}
    spec = compiled(run_spec(prepared, data_spec(), **settings))
    whole, _ = run(spec, prepared.path)
    names = sorted(path.name for path in (whole / "checkpoints").iterdir())
    for name in (names[0], names[len(names) // 2]):
        out = tmp_path / f"from-{name}"
        shutil.copytree(whole / "checkpoints" / name, out / "checkpoints" / name)
        _, statuses = run(spec, prepared.path, out)
        assert statuses == [0]
        assert load(out / "result.json")["weights_digest"] == load(whole / "result.json")["weights_digest"]


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("trainbed-compile-*"))


@pytest.mark.wide
def test_two_ranks_may_exchange_touched_rows_alone(run: Run, datasets: Datasets) -> None:
    prepared, digests = datasets(data_spec()), set()
    for sync in ("dense", "rows"):
        given = {"workers": 2, "batch_per_worker": 4, "last_batch": "drop", "gradient_sync": sync}
        spec = compiled(run_spec(prepared, data_spec(), model=MODEL, **given), evaluation="none")
        out, statuses = run(spec, prepared.path)
        assert statuses == [0, 0]
        digests.add(load(out / "result.json")["weights_digest"])
        for rank in (load(out / f"rank-{number}.json") for number in range(2)):
            assert rank["compiled"]["graphs"] == 1
    assert len(digests) == 1


@pytest.mark.wide
def test_one_program_does_for_all_lengths(run: Run, datasets: Datasets) -> None:
    prepared, losses = datasets(data_spec()), []
    settings = {"model": MODEL, "padding": "longest", "last_batch": "drop"}
    spec = compiled(run_spec(prepared, data_spec(), **settings), evaluation="none")
    for each in (compiled(spec, compile=False), spec):
        out, statuses = run(each, prepared.path)
        assert statuses == [0]
        losses.append(load(out / "result.json")["epochs"][0]["train_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert load(out / "rank-0.json")["compiled"]["graphs"] == 1


@pytest.mark.parametrize(
    ("work", "conditions", "said"),
    [
        ({}, {"bits": "portable"}, "bits: portable is of torch's own kernels, and compile: default makes ot"),
        ({}, {"compile": "reduce-overhead"}, "compile: reduce-overhead is of CUDA graphs, and the device is"),
        ({"padding": "none"}, {}, "with padding: none nearly every batch has a shape of its own; use paddi"),
        ({"simulated_step_ms": 10.0}, {}, "conditions.compile is of a model, and a simulated accelerator"),
        ({"padding": "longest", "checkpoint_every_epochs": 1}, {}, "and a resumed run begins with another o"),
        (
            {"gradient_accumulation": 2},
            {"compile": "reduce-overhead", "device": "cuda"},
            "conditions.compile: reduce-overhead has gradients in memory that the next forward pass overwri",
        ),
    ],
)
def test_what_it_does_not_go_with_refuses_it(
    work: dict[str, Any], conditions: dict[str, Any], said: str, datasets: Datasets
) -> None:
    spec = run_spec(datasets(data_spec()), data_spec(), **work)
    with pytest.raises(ValueError, match=said):
        compiled(spec, **conditions)


def test_without_a_compiler_it_says_what_is_missing() -> None:
    code = "from training.compiled import check_compilers; check_compilers('cpu')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PATH": "/nowhere", "CXX": "g++"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"where ranks run, and {os.uname().nodename} has none; set environment_compiler" in done.stderr
    assert "LaunchError: compile needs a C++ compiler (g++)" in done.stderr
