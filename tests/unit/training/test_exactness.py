"""The engine against plain PyTorch, and one rank against two."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from tests.unit.training.training_helpers import TINY, Datasets, Ranks, Run, data_spec, load, run_spec
from training.data.batches import global_batches
from training.spec import RunSpec
from training.util.network import free_port
from training.util.seeds import derive_seed
from training.weights import weights_digest
from training.workload import open_workload

ROOT = Path(__file__).parents[3]


def plain_ddp(spec: RunSpec, data: Path, out: Path) -> None:
    """The same training, written like PyTorch's examples: DDP and its own reduction, no engine."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    work = spec.work
    workload = open_workload(work, data, spec.conditions, out)
    model = workload.model()
    torch.manual_seed(derive_seed(work.seed, "dropout", rank))
    ddp = DistributedDataParallel(model)
    optimiser: torch.optim.Optimizer
    if work.optimiser == "sgd":
        optimiser = torch.optim.SGD(
            ddp.parameters(), work.learning_rate, 0.8, weight_decay=work.weight_decay, fused=True
        )
    else:
        optimiser = torch.optim.AdamW(
            ddp.parameters(), lr=work.learning_rate, weight_decay=work.weight_decay, fused=True
        )
    steps = work.steps_per_epoch * work.epochs

    def rate(step: int) -> float:
        if step < work.warmup_steps:
            return step / work.warmup_steps
        if work.schedule == "cosine":
            return (1 + math.cos(math.pi * (step - work.warmup_steps) / (steps - work.warmup_steps))) / 2
        return max(0.0, (steps - step) / max(1, steps - work.warmup_steps))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    ddp.train()  # type: ignore[no-untyped-call]
    lengths = workload.lengths() if work.grouping == "length" else None
    for epoch in range(1, work.epochs + 1):
        order: dict[str, Any] = {"keep_last": False, "seed": work.seed, "epoch": epoch, "lengths": lengths}
        for batch in global_batches(work.data.train, work.global_batch, **order):
            mine = workload.batch("train", batch.chunk(world)[rank], epoch)
            with torch.autocast("cpu", torch.bfloat16, enabled=work.precision == "bf16"):
                logits = ddp(input_ids=mine["input_ids"], attention_mask=mine["attention_mask"]).logits
                loss = functional.cross_entropy(logits.float(), mine["labels"])
            loss.backward()  # type: ignore[no-untyped-call]
            if work.clip_gradients:
                torch.nn.utils.clip_grad_norm_(ddp.parameters(), work.clip_gradients)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
    (out / f"digest-{rank}").write_text(weights_digest(model.state_dict()), encoding="ascii")
    dist.barrier()
    os._exit(0)


@pytest.mark.parametrize(
    ("workers", "changes"),
    [
        (2, {}),
        (3, {}),
        (2, {"gradient_sync": "rows"}),
        (2, {"precision": "bf16"}),
        (
            2,
            {"grouping": "length", "padding": "longest", "dropout_draws": "16_bit", "batch_per_worker": 2},
        ),
        (2, {"optimiser": "sgd", "momentum": 0.8, "schedule": "cosine", "clip_gradients": 0.05}),
    ],
)
def test_plain_ddp_gives_the_same_weights(
    run: Run, ranks: Ranks, datasets: Datasets, tmp_path: Path, workers: int, changes: dict[str, Any]
) -> None:
    prepared = datasets(data_spec())
    short = {"workers": workers, "batch_per_worker": 4, "epochs": 2, "last_batch": "drop"}
    spec = run_spec(prepared, data_spec(), **short | changes)
    assert ranks(workers, plain_ddp, (spec, prepared.path, tmp_path)) == [0] * workers
    plain = {(tmp_path / f"digest-{rank}").read_text(encoding="ascii") for rank in range(workers)}
    out, statuses = run(spec, prepared.path)
    assert statuses == [0] * workers
    assert plain == {load(out / "result.json")["weights_digest"]}


@pytest.mark.parametrize(
    ("changes", "of_losses", "of_weights"),
    [({}, 1e-6, 1e-5), ({"grouping": "length"}, 1e-6, 1e-5), ({"precision": "bf16"}, 1e-5, 1e-3)],
)
def test_one_rank_and_two_with_half_the_batch_agree_to_rounding(
    run: Run, datasets: Datasets, changes: dict[str, Any], of_losses: float, of_weights: float
) -> None:
    """Over 20 steps without dropout: losses within one in a million and weights within 1e-5.

    In bf16, which rounds gradients of weights to 8 bits, within one in a hundred thousand and 1e-3.
    """
    data = data_spec(train=40)
    prepared = datasets(data)
    weights, losses = [], []
    for workers in (1, 2):
        settings: dict[str, Any] = {"workers": workers, "batch_per_worker": 8 // workers, "epochs": 4}
        settings |= {"checkpoint_every_epochs": 4} | changes
        spec = run_spec(prepared, data, model=TINY | {"dropout": 0.0}, **settings)
        out, statuses = run(spec, prepared.path)
        assert statuses == [0] * workers
        (kept,) = (out / "checkpoints").iterdir()
        state = torch.load(kept / "state.pt", weights_only=True)
        assert state["steps"] == 20
        weights.append(state["model"])
        losses.append([epoch["train_loss"] for epoch in state["epochs"]])
    assert losses[0] == pytest.approx(losses[1], rel=of_losses)
    apart = max(float((weights[0][name] - weights[1][name]).abs().max()) for name in weights[0])
    assert 0 < apart < of_weights


@pytest.mark.parametrize("launcher", ["ddp", "determined"])
def test_every_launcher_gives_the_same_weights(
    run: Run, datasets: Datasets, tmp_path: Path, launcher: str
) -> None:
    """Determined's off a cluster, where torchrun takes the place of its launcher."""
    prepared = datasets(data_spec())
    spec = run_spec(prepared, data_spec(), workers=2, epochs=2, checkpoint_every_epochs=1)
    other, _ = run(spec, prepared.path)
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    command += ["-m", f"training.launchers.{launcher}"]
    command += ["--spec", str(file), "--data", str(prepared.path), "--out", str(out)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    digests = [json.loads((folder / "result.json").read_text())["weights_digest"] for folder in (out, other)]
    assert digests[0] == digests[1]
    assert list((out / "checkpoints").iterdir())
    found = [load(out / f"rank-{rank}.json") for rank in (0, 1)]
    assert [rank["local_rank"] for rank in found] == [0, 1]
    assert all(rank["phases"]["exposed_sync"] > 0 for rank in found)


@pytest.mark.parametrize(
    ("workers", "changes", "of_losses"),
    [
        (1, {"optimiser_implementation": "foreach"}, 1e-6),
        (1, {"optimiser_implementation": "for_loop"}, 1e-6),
        (2, {"gradient_sync": "fp16"}, 1e-4),
        (2, {"gradient_sync": "bf16"}, 1e-3),
        (2, {"gradient_sync": "powersgd"}, 1e-2),
    ],
)
def test_settings_that_change_rounding_train_as_plain_ones_do(
    run: Run, datasets: Datasets, workers: int, changes: dict[str, Any], of_losses: float
) -> None:
    """Over 20 steps without dropout; gradients are sent in 16 bits, or, by PowerSGD, in part."""
    data = data_spec(train=40)
    prepared = datasets(data)
    digests, losses = [], []
    for changed in ({}, changes):
        settings: dict[str, Any] = {"workers": workers, "batch_per_worker": 8 // workers, "epochs": 4}
        spec = run_spec(prepared, data, model=TINY | {"dropout": 0.0}, **settings | changed)
        out, statuses = run(spec, prepared.path)
        assert statuses == [0] * workers
        result = load(out / "result.json")
        digests.append(result["weights_digest"])
        losses.append([epoch["train_loss"] for epoch in result["epochs"]])
    assert digests[0] != digests[1]
    assert losses[1] == pytest.approx(losses[0], rel=of_losses)
