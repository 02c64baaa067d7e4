"""Batches of a DataLoader: the same bits, its faults told as they are, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import torch

from tests.unit.training.training_helpers import Datasets, Run, data_spec, load, run_spec
from training.errors import DataError
from training.feeding import Request, feed
from training.spec import RunSpec
from training.util.stop import STOPPED_STATUS
from training.workload import Batch, Workload

ROOT = Path(__file__).parents[3]
REQUESTS: list[Request] = [("train", [3, 1], 1), ("train", [2], 2), ("validation", [0, 5], 1)]


class Squares:
    """A stand-in for a workload: the squares of the samples' numbers. Sample 13 can't be read."""

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:
        if 13 in chosen:
            raise DataError("Sample 13 is damaged.")
        if 14 in chosen:
            raise Odd("one", "two")
        return {"values": chosen * chosen * epoch, "of": torch.tensor([len(split), os.getpid()])}


class Odd(Exception):
    """One that can't be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


SQUARES = cast(Workload, Squares())


@pytest.mark.parametrize("workers", [None, 0, 1, 3])
def test_batches_come_in_order_and_the_random_state_is_left_alone(workers: int | None) -> None:
    before = torch.get_rng_state()
    found = list(feed(SQUARES, iter(REQUESTS), workers))
    assert [batch["values"].tolist() for batch in found] == [[9, 1], [8], [0, 25]]
    assert torch.equal(torch.get_rng_state(), before)
    own = {int(batch["of"][1]) == os.getpid() for batch in found}
    assert own == {not workers}


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_a_fault_arrives_as_it_is_and_names_its_place(workers: int | None) -> None:
    fed = feed(SQUARES, [("train", [1], 1), ("train", [13], 1)], workers)
    assert next(fed)["values"].tolist() == [1]
    with pytest.raises(DataError) as caught:
        next(fed)
    assert str(caught.value) == "Sample 13 is damaged."
    if workers is not None:
        assert "in batch" in caught.value.__notes__[0]


def test_a_fault_that_cannot_be_sent_is_told_nevertheless() -> None:
    with pytest.raises(RuntimeError, match="Odd: one and two"):
        next(feed(SQUARES, [("train", [14], 1)], 1))


def test_closing_ends_its_processes() -> None:
    before = set(psutil.Process().children(recursive=True))
    fed = feed(SQUARES, [("train", [number % 7], 1) for number in range(1000)], 2)
    next(fed)
    processes = [each for each in psutil.Process().children(recursive=True) if each not in before]
    assert len(processes) >= 2
    fed.close()
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


def test_a_rank_that_ends_without_closing_it_leaves_nothing() -> None:
    code = """
import os, torch
from training.feeding import feed
class Numbers:
    def batch(self, split, chosen, epoch):
        return {"values": chosen, "of": torch.tensor([os.getpid()])}
fed = feed(Numbers(), [("train", [number], 1) for number in range(100)], 2)
print(*(int(next(fed)["of"]) for _ in range(4)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert not any(psutil.pid_exists(int(number)) for number in done.stdout.split())


def test_all_ways_of_feeding_end_with_the_same_weights(run: Run, datasets: Datasets) -> None:
    data = data_spec()
    prepared = datasets(data)
    work = run_spec(prepared, data, workers=2, epochs=2, gradient_accumulation=3).work
    ended = {}
    ways: list[dict[str, Any]] = [{}, {"loader_workers": 0}, {"loader_workers": 2}]
    for conditions in [*ways, {"loader_workers": 2, "tokenizing": "in_loop"}]:
        spec = RunSpec.model_validate({"stack": "test", "work": work, "conditions": conditions})
        out, statuses = run(spec, prepared.path)
        assert statuses == [0, 0]
        result = load(out / "result.json")
        ended[str(conditions)] = (result["weights_digest"], result["epochs"][-1]["validation_loss"])
    assert len(set(ended.values())) == 1, ended


def test_a_rank_whose_processes_are_all_told_to_stop_keeps_a_checkpoint(
    datasets: Datasets, tmp_path: Path
) -> None:
    data = data_spec()
    prepared = datasets(data)
    work = run_spec(prepared, data, epochs=100_000, checkpoint_every_epochs=50_000).work
    spec = RunSpec.model_validate({"stack": "test", "work": work, "conditions": {"loader_workers": 2}})
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "training", "run", "--spec", str(file), "--data", str(prepared.path)]
    process = subprocess.Popen([*command, "--out", str(out)], cwd=ROOT, start_new_session=True)
    progress, deadline = out / "progress.jsonl", time.monotonic() + 60
    while not progress.exists() or '"epoch"' not in progress.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == STOPPED_STATUS
    assert "a checkpoint was saved" in load(out / "error-0.json")["message"]
    assert len(list((out / "checkpoints").iterdir())) == 1
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
