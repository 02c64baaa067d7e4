"""Kernels are pinned before torch is loaded, or the run says why they can't be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError

from tests.unit.training.training_helpers import Datasets, data_spec, load, run_spec
from training import bits, known_answer
from training.bits import PORTABLE, pin_kernels
from training.errors import LaunchError
from training.spec import Conditions, RunSpec
from training.workload import open_workload

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PORTABLE:
        monkeypatch.delenv(name, raising=False)


def alone(conditions: Conditions, datasets: Datasets, out: Path) -> dict[str, dict[str, str]]:
    """The census of a run in a process of its own: forked ones would have this one's torch."""
    prepared = datasets(data_spec())
    spec = run_spec(prepared, data_spec()).model_copy(update={"conditions": conditions})
    file = out.with_suffix(".json")
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "training", "run", "--spec", str(file), "--data", str(prepared.path)]
    subprocess.run([*command, "--out", str(out)], cwd=ROOT, check=True)
    found: dict[str, dict[str, str]] = load(out / "census-0.json")
    return found


def test_a_portable_run_has_the_kernels_that_it_asks_for(datasets: Datasets, tmp_path: Path) -> None:
    census = alone(Conditions(bits="portable"), datasets, tmp_path / "portable")
    assert census["arithmetic"]["branch of MKL"] == "COMPATIBLE"
    assert census["arithmetic"]["instructions of torch"] == "AVX2"
    assert census["environment"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    usual = alone(Conditions(), datasets, tmp_path / "usual")
    assert not PORTABLE.keys() & usual["environment"].keys()
    assert usual["arithmetic"]["branch of MKL"] != "COMPATIBLE"


def test_a_rank_that_has_loaded_torch_already_says_so() -> None:
    code = "import torch; from training.bits import pin_kernels; pin_kernels('portable')"
    command = [sys.executable, "-c", code]
    late = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert late.returncode == 1 and "bits: portable came too late: torch was loaded before" in late.stderr
    given = subprocess.run(
        command, cwd=ROOT, env=os.environ | PORTABLE, capture_output=True, text=True, check=False
    )
    assert given.returncode == 0, given.stderr


def test_a_processor_without_these_kernels_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor: 0\nFeatures: fp asimd sve\n")
    monkeypatch.setattr(bits, "CPUINFO", cpuinfo)
    pin_kernels("machine")
    with pytest.raises(LaunchError, match=r"needs an x86-64 processor with AVX2, and .* has none"):
        pin_kernels("portable")
    assert not PORTABLE.keys() & os.environ.keys()


def test_it_is_refused_on_gpus() -> None:
    with pytest.raises(ValidationError, match="is of processors, and the device is cuda"):
        Conditions(bits="portable", device="cuda")


def test_the_known_answer_pins_the_same_kernels() -> None:
    assert known_answer.PORTABLE == PORTABLE


def test_variables_that_it_sets_are_not_the_inventorys() -> None:
    with pytest.raises(ValidationError, match="sets MKL_CBWR itself; leave it out of rank_environment"):
        Conditions(bits="portable", rank_environment={"MKL_CBWR": "AVX2"})


def weights_of(model: torch.nn.Module) -> torch.Tensor:
    """All of them, one after another, as they are now."""
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def operations(step: Callable[[], object]) -> set[str]:
    """The names of torch's operations in a step."""
    with torch.profiler.profile() as seen:
        step()
    return {event.key for event in seen.key_averages()}


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_an_optimiser_takes_no_root_that_processors_estimate(
    optimiser: Literal["adamw", "sgd"], datasets: Datasets, tmp_path: Path
) -> None:
    prepared = datasets(data_spec())
    spec = run_spec(prepared, data_spec(), optimiser=optimiser)
    workload = open_workload(spec.work, prepared.path, spec.conditions, tmp_path)
    model = workload.model()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    ours = operations(workload.optimiser(model).step)
    assert f"aten::_fused_{optimiser}_" in ours and "aten::sqrt" not in ours
    assert "aten::sqrt" in operations(torch.optim.AdamW(model.parameters()).step)


@pytest.mark.parametrize("implementation", ["foreach", "for_loop"])
def test_portable_bits_need_the_optimiser_in_one_pass(implementation: str, datasets: Datasets) -> None:
    spec = run_spec(datasets(data_spec()), data_spec(), optimiser_implementation=implementation)
    portable = spec.model_dump() | {"conditions": {"bits": "portable"}}
    with pytest.raises(ValidationError, match="bits: portable needs the optimiser in one pass"):
        RunSpec.model_validate(portable)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_an_optimiser_differs_from_pytorchs_loop_over_parameters_in_rounding_alone(
    optimiser: Literal["adamw", "sgd"], datasets: Datasets, tmp_path: Path
) -> None:
    """Over 20 steps with gradients of size 1 and learning rates of 1e-3: weights within 1e-6."""
    prepared = datasets(data_spec())
    settings: dict[str, Any] = {"optimiser": optimiser, "learning_rate": 1e-3, "weight_decay": 0.01}
    ended = []
    for implementation in ("fused", "foreach", "for_loop"):
        spec = run_spec(prepared, data_spec(), **settings, optimiser_implementation=implementation)
        workload = open_workload(spec.work, prepared.path, spec.conditions, tmp_path)
        torch.manual_seed(1)
        model = torch.nn.Linear(40, 30)
        begun = weights_of(model)
        steps = workload.optimiser(model)
        for _ in range(20):
            for weight in model.parameters():
                weight.grad = torch.randn_like(weight)
            seen = operations(steps.step)
        assert (f"aten::_fused_{optimiser}_" in seen) == (implementation == "fused")
        assert ("aten::_foreach_mul_" in seen) == (implementation == "foreach")
        ended.append(weights_of(model))
    for other in ended[1:]:
        assert (ended[0] - other).abs().max() < 1e-6
    assert (ended[0] - begun).abs().max() > 1e-3
