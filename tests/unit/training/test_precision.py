"""`precision: bf16`: what is computed in bf16 and what stays fp32, with every workload and way to compute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForSequenceClassification
from transformers.pytorch_utils import Conv1D

from tests.rank_processes import rank_variables
from tests.unit.training.test_waiting import POINTS, training_of
from tests.unit.training.training_helpers import TINY, Datasets, Run, data_spec, load, run_on, run_spec
from training.data.prepare import Place, prepare
from training.evaluation import evaluate
from training.export import export
from training.loop import take_step
from training.memory import fitting_batch
from training.precision import in_fp32
from training.registry import register
from training.spec import Conditions, DataSpec, RunSpec, Work
from training.state import Training
from training.util.network import free_port
from training.workload import open_workload

BF16, FP32 = torch.bfloat16, torch.float32
WORKLOADS = {
    "causal-lm": {"layers": 1, "hidden": 16, "heads": 2},
    "image-classification": {"width": 4},
    "points": {},
}
DATA: dict[str, dict[str, Any]] = {
    "causal-lm": {"source": "files", "train_file": "mine.csv", "block": 16, "vocabulary": 300},
    "image-classification": {"size": 17, "channels": 1},
    "points": {},
}
ROOT = Path(__file__).parents[3]


def test_of_what_a_network_returns_bf16_becomes_fp32() -> None:
    low, whole = torch.ones(2, dtype=BF16), torch.arange(2)
    mapping = {"logits": low, "more": [low, None], "name": "x"}
    assert in_fp32(mapping) is mapping
    assert mapping["logits"].dtype == mapping["more"][0].dtype == FP32 and mapping["name"] == "x"
    first, second, third = in_fp32((low, whole, low.double()))
    assert (first.dtype, third.dtype) == (FP32, torch.float64) and second is whole


def test_dropout_draws_as_in_fp32() -> None:
    kept = {}
    for precision in (FP32, BF16):
        torch.manual_seed(1)
        ones = torch.ones(2, 2, 40, 40, dtype=precision)
        attended = functional.scaled_dot_product_attention(ones, ones, torch.eye(40).to(ones), dropout_p=0.3)
        kept[precision] = functional.dropout(ones, 0.3) != 0, attended != 0
    for one, two in zip(*kept.values(), strict=True):
        assert torch.equal(one, two) and one.double().mean().item() == pytest.approx(0.7, abs=0.05)


def settings_of(name: str, tmp_path: Path) -> tuple[RunSpec, Path]:
    """A short run of a workload in bf16, and its data."""
    mine = tmp_path / "mine.csv"
    mine.write_text("text\n" + "".join(f"number {each} of many texts\n" for each in range(200)))
    outside = register(POINTS)
    workload: dict[str, Any] = {"workload": name}
    if name == "points":
        workload = {"workload": outside.name, "workload_digest": outside.digest}
    data = {"train": 24, "validation": 8, "seed": 4} | DATA[name]
    asked = DataSpec.model_validate(workload | {"data": data})
    prepared = prepare(asked, Place(tmp_path), tmp_path / "data")
    settings = {"batch_per_worker": 8, "gradient_accumulation": 2, "model": WORKLOADS[name]}
    return run_on(asked, prepared, precision="bf16", **settings), prepared.path


def seen_in(training: Training, what: Callable[[], object]) -> set[torch.dtype]:
    """In what the products and convolutions of a model are computed while `what` is called."""
    found: set[torch.dtype] = set()

    def see(_: Any, __: Any, returned: torch.Tensor) -> None:
        found.add(returned.dtype)

    products = (torch.nn.Linear, torch.nn.Conv2d, Conv1D)
    layers = [each for each in training.model.modules() if isinstance(each, products)]
    hooks = [each.register_forward_hook(see) for each in layers]
    what()
    for hook in hooks:
        hook.remove()
    return found


def weights_after_three_steps(spec: RunSpec, data: Path) -> list[torch.Tensor]:
    """Of a workload, whose every product is in bf16 and whatever is kept or judged in fp32."""
    training, chosen = training_of(spec, data), torch.arange(8)
    workload, losses = training.workload, list[float]()

    def step() -> None:
        parts = [workload.batch("train", part, 1) for part in chosen.chunk(2)]
        losses.append(take_step(training, chosen, iter(parts))[0].item())

    for _ in range(3):
        assert seen_in(training, step) == {BF16}
    assert losses[2] != losses[1]  # the first step of the warm-up moves nothing
    weights = [each.clone() for each in training.model.state_dict().values()]
    assert {each.dtype for each in weights if each.is_floating_point()} == {FP32}
    moments = [each for of in training.optimiser.state.values() for each in of.values()]
    assert moments and {each.dtype for each in moments} == {FP32}
    assert seen_in(training, lambda: evaluate(training, "validation", 1, keep=False)) == {BF16}
    assert seen_in(training, lambda: fitting_batch(training, 4)) == {BF16}
    batch = training.batch("validation", chosen, 1)
    with training.computing(), torch.inference_mode():
        assert workload.loss(training.model, batch).dtype == FP32
        assert BF16 not in {each.dtype for each in workload.predict(training.model, batch).values()}
    return weights


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_computes_in_bf16_and_learns_in_fp32(name: str, tmp_path: Path) -> None:
    spec, data = settings_of(name, tmp_path)
    once, again = (weights_after_three_steps(spec, data) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(once, again, strict=True))


def test_training_differs_from_fp32_in_rounding_alone(run: Run, datasets: Datasets) -> None:
    """The same draws of dropout; losses within 2 in a thousand; recomputed or repeated, the same bits."""
    prepared, found = datasets(data_spec()), {}
    model = TINY | {"dropout": 0.2, "hidden": 32, "intermediate": 64}
    for precision, again in (("fp32", False), ("bf16", False), ("bf16", True)):
        changes = {"activation_checkpointing": again, "checkpoint_every_epochs": 3, "keep_checkpoints": 1}
        spec = run_spec(prepared, data_spec(), epochs=3, model=model, precision=precision, **changes)
        out, statuses = run(spec, prepared.path)
        assert statuses == [0]
        found[precision, again] = load(out / "result.json")
    plain, ours = found["fp32", False], found["bf16", False]
    assert ours["weights_digest"] == found["bf16", True]["weights_digest"] != plain["weights_digest"]
    for mine, other in zip(ours["epochs"], plain["epochs"], strict=True):
        for loss in ("train_loss", "validation_loss"):
            assert mine[loss] != other[loss]
            assert mine[loss] == pytest.approx(other[loss], rel=2e-3)
    (kept,) = (out / "checkpoints").iterdir()
    state = torch.load(kept / "state.pt", weights_only=True)
    assert {each.dtype for each in state["model"].values()} == {FP32}

    home = export(spec, prepared.path, out, out / "home")
    exported: Any = AutoModelForSequenceClassification.from_pretrained(home)
    assert exported.dtype == FP32
    batch = open_workload(spec.work, prepared.path, Conditions(), out).batch(
        "validation", torch.arange(11), 1
    )
    with torch.inference_mode():
        theirs = exported.eval()(**batch).loss.item()
    assert theirs == pytest.approx(ours["epochs"][-1]["validation_loss"], rel=2e-3)


def test_a_processor_without_bf16_emulates_it(datasets: Datasets, tmp_path: Path) -> None:
    """As one with AVX2 alone, which this one is made to be: other last bits, and the same training."""
    prepared, losses = datasets(data_spec()), {}
    avx2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"}
    for precision in ("fp32", "bf16"):
        spec = run_spec(prepared, data_spec(), epochs=2, precision=precision)
        file, out = tmp_path / f"{precision}.json", tmp_path / precision
        file.write_text(spec.model_dump_json(), encoding="utf-8")
        command = [sys.executable, "-m", "training.launchers.ddp", "--spec", str(file)]
        done = subprocess.run(
            [*command, "--data", str(prepared.path), "--out", str(out)],
            cwd=ROOT,
            env=os.environ | avx2 | rank_variables(0, 1, free_port()),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        losses[precision] = [epoch["train_loss"] for epoch in load(out / "result.json")["epochs"]]
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=2e-3)


def test_images_so_small_that_a_convolution_steps_over_one_pixel_are_refused() -> None:
    data = {"size": 16, "train": 100, "validation": 20, "seed": 1}
    work = {"workload": "image-classification", "data_digest": "0" * 64, "data": data, "workers": 1}
    work |= {"epochs": 1, "seed": 1, "last_batch": "drop"}
    said = "precision: bf16 is nothing that this model of image-classification computes well in with these da"
    with pytest.raises(ValueError, match=said):
        Work.model_validate(work | {"precision": "bf16"})
    assert Work.model_validate(work | {"precision": "bf16", "data": data | {"size": 17}})


def test_what_has_no_model_or_promises_portable_bits_refuses_it(datasets: Datasets) -> None:
    spec = json.loads(run_spec(datasets(data_spec()), data_spec(), precision="bf16").model_dump_json())
    with pytest.raises(ValueError, match=r"precision: bf16 is of a model, and a simulated accelerator"):
        RunSpec.model_validate(spec | {"work": spec["work"] | {"simulated_step_ms": 10.0}})
    with pytest.raises(ValueError, match=r"conditions\.bits: portable is of fp32, and this is precision: b"):
        RunSpec.model_validate(spec | {"conditions": {"bits": "portable"}})
