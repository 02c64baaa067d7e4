"""Tests that need a GPU: `make gpu-check`. Without one, all are skipped, with the reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.unit.training.test_waiting import training_of
from tests.unit.training.training_helpers import Datasets, data_spec, load, run_spec
from training.distributed.gradients import register, settings_of
from training.loop import take_step
from training.util.network import free_port
from training.workloads.text_classification.settings import Data

ROOT = Path(__file__).resolve().parents[2]
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0

pytestmark = pytest.mark.skipif(
    not GPUS, reason=f"torch {torch.__version__} sees no GPU on this machine (CUDA {torch.version.cuda})"
)
SMALL = {"layers": 2, "hidden": 128, "heads": 2, "intermediate": 512}


def torchrun(ranks: int, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Start ranks on this machine, as the stacks do on their nodes."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nproc-per-node={ranks}",
            f"--master-port={free_port()}",
            *command,
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def train(
    datasets: Datasets, folder: Path, ranks: int, *, compiled: str | bool = False, **work: Any
) -> dict[str, Any]:
    """Train on this machine's GPUs; rank 0's results."""
    data = data_spec(train=64, validation=11)
    prepared = datasets(data)
    settings = {"model": SMALL, "slots_per_worker": ranks, "epochs": 3} | work
    spec = run_spec(prepared, data, **settings)
    conditions = spec.conditions.model_copy(update={"device": "cuda", "compile": compiled})
    spec = spec.model_copy(update={"conditions": conditions})
    folder.mkdir()
    file = folder / "spec.json"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    launcher = ("-m", "training.launchers.ddp", "--spec", file, "--data", prepared.path, "--out", folder)
    done = torchrun(ranks, *launcher)
    assert done.returncode == 0, done.stderr[-3000:]
    return load(folder / "rank-0.json")


def test_the_list_of_gpus_is_the_drivers() -> None:
    script = ROOT / "roles/nvidia/files/list-gpus"
    listed = json.loads(
        subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    )
    assert listed["trouble"] is None
    seen = {f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(GPUS)}
    assert seen <= {gpu["uuid"] for gpu in listed["gpus"]}


def test_every_gpu_computes_and_nccl_reduces() -> None:
    done = torchrun(GPUS, ROOT / "roles/nvidia/files/check-gpus")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"backend"')))
    assert [rank["trouble"] for rank in found["ranks"]] == [None] * GPUS
    assert (found["all_reduce"] is None) == (GPUS == 1)


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"precision": "bf16"},
        {"padding": "none", "model": SMALL | {"last_layer": "first_token"}},
        {"compiled": "default", "last_batch": "drop"},
        {"compiled": "reduce-overhead", "last_batch": "drop"},
    ],
    ids=str,
)
def test_training_gives_the_same_bits_twice_and_is_sampled(
    datasets: Datasets, tmp_path: Path, way: dict[str, Any]
) -> None:
    first = train(datasets, tmp_path / "first", 1, **way)
    again = train(datasets, tmp_path / "again", 1, **way)
    assert first["weights_digest"] == again["weights_digest"]
    seen = first["gpu"]
    assert seen["trouble"] is None
    assert seen["samples"] > 0 and seen["memory_mb_max"] > 0
    assert seen["uuid"] == f"GPU-{torch.cuda.get_device_properties(0).uuid}"


@pytest.mark.skipif(GPUS < 2, reason="this machine has fewer than two GPUs, and NCCL needs one for each rank")
def test_two_ranks_end_with_equal_weights_over_nccl(datasets: Datasets, tmp_path: Path) -> None:
    digests = set()
    for sync in ("dense", "rows"):
        train(datasets, tmp_path / sync, 2, gradient_sync=sync)
        digests |= {load(tmp_path / sync / f"rank-{rank}.json")["weights_digest"] for rank in (0, 1)}
    assert len(digests) == 1


@pytest.mark.parametrize("changes", [{}, {"padding": "none", "model": SMALL | {"last_layer": "first_token"}}])
def test_a_step_waits_for_nothing(datasets: Datasets, changes: dict[str, Any]) -> None:
    data = data_spec(train=64, validation=11)
    prepared = datasets(data)
    spec = run_spec(prepared, data, **({"model": SMALL} | changes))
    training = training_of(spec, prepared.path, torch.device("cuda", 0))
    chosen = torch.arange(training.work.global_batch)
    for number in range(3):
        # The first steps take memory and choose kernels.
        torch.cuda.set_sync_debug_mode("error" if number == 2 else "default")
        try:
            take_step(training, chosen, iter([training.workload.batch("train", chosen, 1)]))
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_touched_rows_are_all_that_have_gradients() -> None:
    device = torch.device("cuda", 0)
    place = f"tcp://127.0.0.1:{free_port()}"
    dist.init_process_group("nccl", init_method=place, rank=0, world_size=1, device_id=device)
    try:
        weights = []
        for sync in ("dense", "rows"):
            torch.manual_seed(1)
            table = torch.nn.Embedding(2_000, 8)
            model = torch.nn.Sequential(table, torch.nn.Linear(8, 3)).to(device)
            replica = DistributedDataParallel(model, **settings_of(model, sync))
            register(replica, sync, lambda: None, whole_steps=2)
            optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
            for _ in range(5):
                optimiser.zero_grad()
                replica(torch.randint(2_000, (4, 16), device=device)).square().mean().backward()
                optimiser.step()
            weights.append([each.detach().cpu() for each in model.parameters()])
    finally:
        dist.destroy_process_group()
    for dense, rows in zip(*weights, strict=True):
        assert torch.equal(dense, rows)


def test_a_batch_that_does_not_fit_names_one_that_does(datasets: Datasets, tmp_path: Path) -> None:
    data = Data(train=64, validation=11, seed=1, max_length=512, vocabulary=300)
    prepared = datasets(data)
    # BERT-base on a card of 6 GiB, or less if this one is smaller.
    share = min(0.9, 6 * 2**30 / torch.cuda.mem_get_info(0)[1])
    base = {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072}
    spec = run_spec(prepared, data, model=base, batch_per_worker=64)
    spec = spec.model_copy(update={"conditions": spec.conditions.model_copy(update={"device": "cuda"})})
    file = tmp_path / "spec.json"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    program = tmp_path / "limited.py"
    arguments = ["--spec", str(file), "--data", str(prepared.path), "--out", str(tmp_path / "out")]
    program.write_text(
        f"import torch\ntorch.cuda.set_per_process_memory_fraction({share}, 0)\n"
        f"from training.rank import launch_rank\nlaunch_rank('limited', {arguments!r})\n",
        encoding="utf-8",
    )
    assert torchrun(1, program).returncode != 0
    said = load(tmp_path / "out" / "error-0.json")["message"]
    assert re.search(r"\); \d+ fit here: use batch_per_worker \d+, or keep the batch", said), said
