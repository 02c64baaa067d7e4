"""Failures are reported where people look, and the exit code is not 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rank_processes import rank_variables
from tests.unit.training.training_helpers import Datasets, Ranks, Run, data_spec, load, run_spec
from training.errors import explain_failure, out_of_memory
from training.spec import Conditions
from training.util.network import free_port
from training.util.stop import STOPPED_STATUS

ROOT = Path(__file__).parents[3]


def error(out: Path, rank: int = 0) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / f"error-{rank}.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("std::bad_alloc"), True),
        (MemoryError(), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (OSError("can't allocate memory"), False),
    ],
)
def test_memory_that_ran_out_is_told_from_other_failures(error: Exception, *, short: bool) -> None:
    assert out_of_memory(error) is short


def test_advice_where_memory_is_short_names_no_setting_of_one_workload() -> None:
    said = explain_failure(MemoryError("no more"))
    assert said.endswith("activation_checkpointing, or smaller samples.") and "max_length" not in said


@pytest.mark.parametrize("found", ["2", None])
def test_threads_may_be_what_the_stack_sets(datasets: Datasets, tmp_path: Path, found: str | None) -> None:
    prepared = datasets(data_spec())
    asked = run_spec(prepared, data_spec())
    asked = asked.model_copy(update={"conditions": Conditions(threads="stack")})
    (tmp_path / "spec.json").write_text(asked.model_dump_json(), encoding="utf-8")
    environment = os.environ | {"OMP_NUM_THREADS": found or ""} | rank_variables(0, 1, free_port())
    if found is None:
        del environment["OMP_NUM_THREADS"]
    command = [sys.executable, "-m", "training", "run", "--spec", str(tmp_path / "spec.json")]
    command += ["--data", str(prepared.path), "--out", str(tmp_path / "out")]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    rank = load(tmp_path / "out/rank-0.json")
    assert rank["OMP_NUM_THREADS"] == found
    # torch takes the cores of the process where nothing is set.
    assert rank["threads"] == (2 if found else len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("found", "says"), [("2", "is 2"), (None, "is not set")])
def test_another_number_of_threads_than_the_run_asks_for(
    run: Run, datasets: Datasets, monkeypatch: pytest.MonkeyPatch, found: str | None, says: str
) -> None:
    prepared = datasets(data_spec())
    if found:
        monkeypatch.setenv("OMP_NUM_THREADS", found)
    else:
        monkeypatch.delenv("OMP_NUM_THREADS")
    out, statuses = run(run_spec(prepared, data_spec()), prepared.path)
    assert statuses == [1]
    assert error(out)["type"] == "ThreadsError"
    assert f"OMP_NUM_THREADS {says}; set OMP_NUM_THREADS=1 in" in error(out)["message"]
    (event,) = [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]
    assert (event["event"], event["message"]) == ("error", error(out)["message"])
    assert not (out / "result.json").exists()


@pytest.mark.parametrize(("found", "says"), [("WARN", "is WARN"), (None, "is not set")])
def test_a_variable_that_the_run_asks_for_has_not_reached_the_rank(
    run: Run, datasets: Datasets, monkeypatch: pytest.MonkeyPatch, found: str | None, says: str
) -> None:
    prepared = datasets(data_spec())
    conditions = Conditions(rank_environment={"MADE_UP": "INFO"})
    specification = run_spec(prepared, data_spec()).model_copy(update={"conditions": conditions})
    if found:
        monkeypatch.setenv("MADE_UP", found)
    out, statuses = run(specification, prepared.path)
    assert statuses == [1]
    assert error(out)["type"] == "LaunchError"
    assert f"MADE_UP=INFO in the environment of every rank, but MADE_UP {says}; " in error(out)["message"]
    monkeypatch.setenv("MADE_UP", "INFO")
    _, statuses = run(specification, prepared.path)
    assert statuses == [0]


def test_another_number_of_ranks_than_the_work_has(ranks: Ranks, datasets: Datasets, tmp_path: Path) -> None:
    from training.rank import run_rank

    prepared = datasets(data_spec())
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(run_spec(prepared, data_spec(), workers=2).model_dump_json(), encoding="utf-8")
    assert ranks(1, run_rank, (file, prepared.path, out)) == [1]
    assert error(out)["type"] == "LaunchError"
    assert "The work has 2 ranks (2 workers of 1), but WORLD_SIZE is 1" in error(out)["message"]


def test_data_that_are_not_there_fail_on_every_rank(run: Run, datasets: Datasets, tmp_path: Path) -> None:
    prepared = datasets(data_spec())
    out, statuses = run(run_spec(prepared, data_spec(), workers=2), tmp_path)
    assert statuses == [1, 1]
    for rank in (0, 1):
        assert error(out, rank)["rank"] == rank
        assert "There is no prepared data set in" in error(out, rank)["message"]
        assert "DataError" in error(out, rank)["traceback"]


def test_a_signal_ends_a_run_with_a_file_that_says_so(datasets: Datasets, tmp_path: Path) -> None:
    import training.job  # noqa: F401  # imported before the fork
    from training.rank import run_rank

    prepared = datasets(data_spec())
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(run_spec(prepared, data_spec(), epochs=100_000).model_dump_json(), encoding="utf-8")
    pid = os.fork()
    if not pid:
        os._exit(run_rank(file, prepared.path, out))
    deadline = time.monotonic() + 30
    while not (out / "progress.jsonl").exists() or '"epoch"' not in (out / "progress.jsonl").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(pid, signal.SIGTERM)
    started = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == STOPPED_STATUS
    assert time.monotonic() - started < 3  # by itself, not because its grace period was over
    assert error(out)["type"] == "Stopped"
    assert error(out)["message"].startswith("The process was told to stop by SIGTERM: step ")
    assert json.loads((out / "progress.jsonl").read_text().splitlines()[-1])["event"] == "error"


def test_a_rank_that_is_stuck_outside_python_ends_too(tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = f"""
import ctypes, pathlib
from training.errors import out_of_memory
from training.util.stop import StopSignal
StopSignal(0.3, lambda stopped: pathlib.Path({str(said)!r}).write_text(str(stopped)))
print("ready", flush=True)
libc = ctypes.CDLL(None)
while True:
    libc.sem_wait(ctypes.create_string_buffer(64))
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == STOPPED_STATUS
    assert "told to stop by SIGTERM" in said.read_text()
    process.stdout.close()
