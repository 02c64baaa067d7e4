"""A script runs under torchrun as it is, is timed from outside, and says more if it wants to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from pydantic import ValidationError

from experiments.records.outputs import RankFile, ResultFile, read_output
from tests.rank_processes import rank_variables
from tests.unit.training.training_helpers import events, load, run_on
from training import program
from training.data.prepare import Place, Prepared, prepare
from training.errors import DataError
from training.session import RankStatus, Session
from training.spec import DataSpec, RunSpec
from training.util.network import free_port
from training.weights import weights_digest

HERE = Path(__file__).parent
ROOT = HERE.parents[4]
PATIENCE = 120  # s


def asked_for(script: str, *include: str) -> DataSpec:
    data = {"script": script, "include": list(include), "train": 64}
    return DataSpec.model_validate({"workload": "script", "data": data})


def of_rank(specification: RunSpec, prepared: Prepared, out: Path) -> list[str]:
    """A rank's module and its arguments, for a run in the new folder `out`."""
    out.mkdir()
    file = out / "spec.json"
    file.write_text(specification.model_dump_json(), encoding="utf-8")
    return ["-m", "training", "run", "--spec", str(file), "--data", str(prepared.path), "--out", str(out)]


def launched(specification: RunSpec, prepared: Prepared, out: Path) -> subprocess.Popen[str]:
    ranks = str(specification.work.world_size)
    command = [sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    command += of_rank(specification, prepared, out)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def launched_alone(
    specification: RunSpec, prepared: Prepared, tmp_path: Path
) -> list[subprocess.Popen[bytes]]:
    """Two ranks that no launcher starts; each writes to a log, `of-<rank>`."""
    port, arguments = free_port(), of_rank(specification, prepared, tmp_path / "run")
    ranks = []
    for rank in range(2):
        environment = os.environ | rank_variables(rank, 2, port)
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", *arguments]
        with (tmp_path / f"of-{rank}").open("w", encoding="utf-8") as log:
            ranks.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
    return ranks


def circle(tmp_path: Path, *more: str, workers: int = 2) -> tuple[RunSpec, Prepared]:
    asked = asked_for("circle.py")
    prepared = prepare(asked, Place(HERE), tmp_path / "data")
    arguments = ["--epochs", "{epochs}", "--seed", "{seed}", *more]
    model: dict[str, Any] = {"arguments": arguments}
    return run_on(asked, prepared, model=model, workers=workers, epochs=3), prepared


@pytest.mark.parametrize("workers", [1, 2])
def test_a_script_runs_as_it_is(tmp_path: Path, workers: int) -> None:
    specification, prepared = circle(tmp_path, workers=workers)
    process = launched(specification, prepared, tmp_path / "run")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    out = tmp_path / "run"
    for each in range(workers):
        assert f"rank {each} of {workers} in {out / 'script'}" in said
    assert (out / "script" / "weights.pt").is_file(), "it may write where it is"
    result = read_output(ResultFile, out / "result.json")
    assert result is not None
    assert (result.status, result.epochs, result.weights_digest) == ("ok", [], None)
    for number in range(workers):
        rank = read_output(RankFile, out / f"rank-{number}.json")
        assert rank is not None and rank.weights_digest is None
        assert rank.train_s == pytest.approx(rank.times.train_end - rank.times.train_start, abs=0.5)
        assert rank.phases["other"] == pytest.approx(rank.train_s, abs=0.01)
    assert [each["event"] for each in events(out)] == ["start", "end"]
    assert not list(out.glob("error-*"))


@pytest.mark.parametrize(("output", "found"), [("unbuffered", "1"), ("stack", None)])
def test_its_output_is_buffered_as_the_launch_has_it_if_a_run_asks_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, found: str | None
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    (tmp_path / "show.py").write_text("import os\nprint('has', os.environ.get('PYTHONUNBUFFERED'))\n")
    asked = asked_for("show.py")
    prepared = prepare(asked, Place(tmp_path), tmp_path / "data")
    fields = run_on(asked, prepared).model_dump() | {"conditions": {"script_output": output}}
    process = launched(RunSpec.model_validate(fields), prepared, tmp_path / "run")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert f"has {found}\n" in said


def test_its_calls_give_metrics_phases_and_a_digest(tmp_path: Path) -> None:
    asked = asked_for("reporting.py", "beside")
    prepared = prepare(asked, Place(HERE), tmp_path / "data")
    arguments = ["--epochs", "{epochs}", "--rate={learning_rate}", "--out", "{out}"]
    specification = run_on(
        asked, prepared, model={"arguments": arguments}, workers=2, epochs=2, learning_rate=0.5
    )
    process = launched(specification, prepared, tmp_path / "run")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    out = tmp_path / "run"
    assert (out / "script" / "ended.txt").read_text(encoding="utf-8") == "done"
    result = read_output(ResultFile, out / "result.json")
    assert result is not None
    # The sum over two ranks of 0 + 0.5, and of that + 0.5.
    assert result.weights_digest == weights_digest({"weights": torch.full((3,), 3.0)})
    assert [each.epoch for each in result.epochs] == [1, 2]
    assert [each.train_loss for each in result.epochs] == [1.0, 0.5]
    assert [each.metric("accuracy") for each in result.epochs] == [0.6, 0.7]
    assert result.epochs[1].metric("test_f1") == 0.25
    second = load(out / "rank-1.json")
    assert second["parameters"] == 3
    assert {"forward", "evaluation", "other", "imports", "rendezvous"} == set(second["phases"])
    assert "epoch 2 of 2: loss 0.5000" in said

    apart = run_on(
        asked,
        prepared,
        model={"arguments": [*arguments, "--apart"]},
        workers=2,
        epochs=2,
        learning_rate=0.5,
    )
    process = launched(apart, prepared, tmp_path / "apart")
    process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert "The ranks of reporting.py reported different weights" in _error(tmp_path / "apart", 0)


def test_the_census_is_that_of_the_scripts_own_process(tmp_path: Path) -> None:
    data = {"script": "null_step.py", "train": 64, "judged_by": "beyond_ms"}
    asked = DataSpec.model_validate({"workload": "script", "data": data})
    prepared = prepare(asked, Place(ROOT / "experiments" / "matrices"), tmp_path / "data")
    arguments = ["--steps", "20", "--step-ms", "5"]
    specification = run_on(asked, prepared, model={"arguments": arguments}, workers=1, epochs=1)
    process = launched(specification, prepared, tmp_path / "run")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    census = load(tmp_path / "run" / "census-0.json")
    assert census["environment"]["TRAINBED_EVENTS"].endswith("events-0.jsonl")
    assert "HF_HUB_OFFLINE" not in census["environment"]
    assert census["process"]["arithmetic, kernels and packages"] == "of the process that started it"
    result = read_output(ResultFile, tmp_path / "run" / "result.json")
    assert result is not None and result.epochs[0].metric("beyond_ms") is not None


def test_of_a_script_that_is_gone_too_soon_there_is_no_census(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("print('done')\n")
    asked = asked_for("short.py")
    prepared = prepare(asked, Place(tmp_path), tmp_path / "data")
    process = launched(run_on(asked, prepared, model={}, workers=1, epochs=1), prepared, tmp_path / "run")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    found = load(tmp_path / "run" / "census-0.json")
    assert found == {"process": {"trouble": "the program ended before its rank took its census"}}


@pytest.mark.parametrize(
    ("words", "after", "times"),
    [
        ("pass", 60.0, 0),
        ("import time; time.sleep(2)", 0.1, 1),
        ("import time, trainbed; trainbed.phase('data'); time.sleep(2)", 60.0, 1),
    ],
)
def test_a_program_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, after: float, times: int
) -> None:
    monkeypatch.setattr(program, "CENSUS_AFTER", after)

    class Alone:
        rank = 0

        def should_stop(self) -> bool:
            return False

    seen: list[int] = []
    given = program.Program("x", (sys.executable, "-c", words), tmp_path)
    said, _ = program._run(
        given, tmp_path / "events", dict(os.environ), cast(Session, Alone()), RankStatus(), seen.append
    )
    assert (len(seen), said.seen) == (times, times == 1)


def test_a_script_that_fails_on_one_rank_ends_the_run(tmp_path: Path) -> None:
    specification, prepared = circle(tmp_path, "--fail-on-rank", "1")
    process = launched(specification, prepared, tmp_path / "run")
    process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    said = _error(tmp_path / "run", 1)
    assert said == "circle.py ended with exit code 3 on rank 1; the log has its last words."
    assert not (tmp_path / "run" / "result.json").exists()


def test_without_a_launcher_all_ranks_end_well(tmp_path: Path) -> None:
    ranks = launched_alone(*circle(tmp_path), tmp_path)
    assert [rank.wait(PATIENCE) for rank in ranks] == [0, 0]
    out = tmp_path / "run"
    assert load(out / "result.json")["status"] == "ok" and not list(out.glob("error-*"))


def test_without_a_launcher_a_lost_rank_is_named_and_nothing_is_left_running(tmp_path: Path) -> None:
    specification, prepared = circle(tmp_path, "--hang")
    out = tmp_path / "run"
    ranks = launched_alone(specification, prepared, tmp_path)
    try:
        _wait_for(lambda: all("rank" in (tmp_path / f"of-{rank}").read_text("utf-8") for rank in range(2)))
        time.sleep(1)
        scripts = _running(out / "script")
        assert len(scripts) == 2
        ranks[1].send_signal(signal.SIGKILL)
        assert ranks[0].wait(PATIENCE) == 1
        assert ranks[1].wait(PATIENCE) == -signal.SIGKILL
        said = _error(out, 0)
        assert "circle.py ended with exit code" in said or "Rank 1 on" in said
        _wait_for(lambda: not _running(out / "script"))
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def test_a_script_is_told_to_stop(tmp_path: Path) -> None:
    specification, prepared = circle(tmp_path, "--hang")
    process = launched(specification, prepared, tmp_path / "run")
    out = tmp_path / "run"
    _wait_for(lambda: len(_running(out / "script")) == 2)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert "The process was told to stop by SIGTERM: circle.py was running." in _error(out, 0)
    assert not _running(out / "script")


def test_its_files_and_arguments_are_checked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no missing\.csv beside the matrix"):
        prepare(asked_for("circle.py", "missing.csv"), Place(HERE), tmp_path)
    with pytest.raises(DataError, match="beside is a folder: name the script in it"):
        prepare(asked_for("beside"), Place(HERE), tmp_path)
    with pytest.raises(ValidationError, match=r"\.\./circle\.py must lie beside the matrix"):
        asked_for("../circle.py")
    prepared = prepare(asked_for("circle.py"), Place(HERE), tmp_path)
    with pytest.raises(ValidationError, match=r"there is no \{epoch\} to put in; there are \{epochs\}, "):
        run_on(asked_for("circle.py"), prepared, model={"arguments": ["--n={epoch}"]})
    inside = asked_for("beside/names.py", "beside")
    assert inside.data.files == ("beside",)
    with pytest.raises(DataError, match=r"There is no beside/none\.py beside the matrix"):
        prepare(asked_for("beside/none.py", "beside"), Place(HERE), tmp_path)
    changed = prepare(asked_for("circle.py", "beside"), Place(HERE), tmp_path)
    assert changed.digest != prepared.digest


def _error(out: Path, rank: int) -> str:
    said: str = load(out / f"error-{rank}.json")["message"]
    return said


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _running(folder: Path) -> list[int]:
    """The processes whose working directory this is."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink() == folder:
                found.append(int(link.parent.name))
        except OSError:
            continue
    return found
