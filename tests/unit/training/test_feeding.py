"""Batches of a DataLoader: the same bits, its faults told as they are, and nothing left running."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path
from typing import Any, Literal, cast

import psutil
import pytest
import torch
from pydantic import ValidationError

from tests.unit.training.training_helpers import Datasets, Run, data_spec, load, run_spec
from training import feeding
from training.errors import DataError, WorkloadError
from training.feeding import Request, feed
from training.spec import Conditions, RunSpec
from training.util.stop import STOPPED_STATUS
from training.workload import Batch, Workload, open_workload

ROOT = Path(__file__).parents[3]
Start = Literal["fork", "spawn"]
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


@pytest.mark.parametrize(
    ("workers", "start"), [(None, "fork"), (0, "fork"), (1, "fork"), (3, "fork"), (1, "spawn")]
)
def test_batches_come_in_order_and_the_random_state_is_left_alone(workers: int | None, start: Start) -> None:
    before = torch.get_rng_state()
    found = list(feed(SQUARES, iter(REQUESTS), Conditions(loader_workers=workers, loader_start=start)))
    assert [batch["values"].tolist() for batch in found] == [[9, 1], [8], [0, 25]]
    assert torch.equal(torch.get_rng_state(), before)
    own = {int(batch["of"][1]) == os.getpid() for batch in found}
    assert own == {not workers}


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_a_fault_arrives_as_it_is_and_names_its_place(workers: int | None) -> None:
    fed = feed(SQUARES, [("train", [1], 1), ("train", [13], 1)], Conditions(loader_workers=workers))
    assert next(fed)["values"].tolist() == [1]
    with pytest.raises(DataError) as caught:
        next(fed)
    assert str(caught.value) == "Sample 13 is damaged."
    if workers is not None:
        assert "in batch" in caught.value.__notes__[0]


def test_a_fault_that_cannot_be_sent_is_told_nevertheless() -> None:
    with pytest.raises(RuntimeError, match="Odd: one and two"):
        next(feed(SQUARES, [("train", [14], 1)], Conditions(loader_workers=1)))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_closing_ends_its_processes(start: Start) -> None:
    ensure_running()  # the one process that is not of a loader: it stays as long as this one
    before = set(psutil.Process().children(recursive=True))
    requests = [("train", [number % 7], 1) for number in range(1000)]
    fed = feed(SQUARES, requests, Conditions(loader_workers=2, loader_start=start))
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
from training.spec import Conditions
class Numbers:
    def batch(self, split, chosen, epoch):
        return {"values": chosen, "of": torch.tensor([os.getpid()])}
fed = feed(Numbers(), [("train", [number], 1) for number in range(100)], Conditions(loader_workers=2))
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


def test_processes_that_start_anew_change_no_weights(run: Run, datasets: Datasets) -> None:
    data = data_spec()
    prepared = datasets(data)
    work = run_spec(prepared, data, workers=2).work
    digests = []
    in_loop = {"loader_workers": 1, "tokenizing": "in_loop"}
    for conditions in (in_loop, in_loop | {"loader_start": "spawn"}):
        spec = RunSpec.model_validate({"stack": "test", "work": work, "conditions": conditions})
        out, statuses = run(spec, prepared.path)
        assert statuses == [0, 0]
        digests.append(load(out / "result.json")["weights_digest"])
    assert digests[0] == digests[1]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_rank_whose_processes_are_all_told_to_stop_keeps_a_checkpoint(
    datasets: Datasets, tmp_path: Path, start: Start
) -> None:
    data = data_spec()
    prepared = datasets(data)
    work = run_spec(prepared, data, epochs=100_000, checkpoint_every_epochs=50_000).work
    conditions = {"loader_workers": 2 if start == "fork" else 1, "loader_start": start}
    spec = RunSpec.model_validate({"stack": "test", "work": work, "conditions": conditions})
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "training", "run", "--spec", str(file), "--data", str(prepared.path)]
    process = subprocess.Popen([*command, "--out", str(out)], cwd=ROOT, start_new_session=True)
    progress, deadline = out / "progress.jsonl", time.monotonic() + 120
    while not progress.exists() or '"epoch"' not in progress.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) == STOPPED_STATUS
    assert "a checkpoint was saved" in load(out / "error-0.json")["message"]
    assert len(list((out / "checkpoints").iterdir())) == 1
    _until_nobody_is_in(process.pid)


def _until_nobody_is_in(group: int) -> None:
    """Wait until no process is left: the one that multiprocessing has for its files ends a moment later."""
    deadline = time.monotonic() + 10
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.05)


class Unsendable(Squares):
    """One that holds what can't be pickled."""

    def __init__(self) -> None:
        self.scale = lambda number: number


def test_what_cannot_be_sent_to_processes_that_start_anew_is_told_at_once() -> None:
    spawned = Conditions(loader_workers=2, loader_start="spawn")
    with pytest.raises(
        WorkloadError, match=r"^Unsendable can't be sent to .*lambda.*leave loader_start: spawn"
    ):
        next(feed(cast(Workload, Unsendable()), REQUESTS, spawned))
    forked = Conditions(loader_workers=2)
    assert next(feed(cast(Workload, Unsendable()), REQUESTS, forked))["values"].tolist() == [9, 1]


@pytest.mark.parametrize(("allocator", "kept"), [("tuned", [True]), ("stock", [])])
def test_what_a_forked_process_has_from_its_rank_one_that_starts_anew_is_told(
    monkeypatch: pytest.MonkeyPatch, allocator: Any, kept: list[bool]
) -> None:
    before, told = torch.are_deterministic_algorithms_enabled(), list[bool]()
    monkeypatch.setattr(feeding, "keep_freed_memory", lambda: told.append(True))
    try:
        torch.use_deterministic_algorithms(True)
        sent = pickle.dumps(feeding._Batches(SQUARES, Conditions(allocator=allocator)))
        torch.use_deterministic_algorithms(False)
        assert pickle.loads(sent)["train", [3], 1]["values"].tolist() == [9]
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(before)
    assert told == kept


@pytest.mark.parametrize("tokenizing", ["before", "in_loop"])
def test_data_are_not_sent_but_mapped_again(
    datasets: Datasets, tmp_path: Path, tokenizing: Literal["before", "in_loop"]
) -> None:
    sizes, chosen = [], torch.arange(11)
    for train in (20, 60):
        data = data_spec(train)
        prepared = datasets(data)
        work, conditions = run_spec(prepared, data).work, Conditions(tokenizing=tokenizing)
        workload = open_workload(work, prepared.path, conditions, tmp_path)
        sent = pickle.dumps(workload)
        found, expected = pickle.loads(sent).batch("train", chosen, 1), workload.batch("train", chosen, 1)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        sizes.append(len(sent))
    assert sizes[1] - sizes[0] < 40 * 8, "only the labels of 40 more samples"


@pytest.mark.parametrize("loader_workers", [None, 0])
def test_how_processes_start_is_refused_where_there_are_none(loader_workers: int | None) -> None:
    with pytest.raises(ValidationError, match=r"loader_start: spawn is of .*set loader_workers to 1 or more"):
        Conditions(loader_workers=loader_workers, loader_start="spawn")
