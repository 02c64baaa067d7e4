"""What conformance says of workloads that keep the contract, and of those that break one of its promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from training.registry import built_in

ROOT = Path(__file__).parents[4]
HERE = Path(__file__).parent


def conformance(workload: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the checks, or some of them."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/conformance/test_workload.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*command, "--workload", workload, *arguments],
        cwd=ROOT,
        env=environment | {"COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_users_workload_conforms() -> None:
    done = conformance(str(HERE / "points"))
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.parametrize("workload", [name for name in built_in() if name != "script"])
def test_what_is_built_in_conforms(workload: str) -> None:
    done = conformance(workload)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("file", "old", "new", "check", "said"),
    [
        (
            "workload.py",
            "        rows = chosen.numpy()",
            "        rows = chosen.numpy()\n        shift = torch.rand(len(rows), 2)",
            "each_time",
            "A batch of the train split draws at random: .*workload.py, line [0-9]+: shift = torch.rand",
        ),
        (
            "workload.py",
            "        rows = chosen.numpy()",
            "        rows = chosen.numpy()\n        noise = np.random.default_rng().normal()",
            "each_time",
            "draws at random: .*workload.py, line [0-9]+: noise = np.random.default_rng",
        ),
        (
            "workload.py",
            "        rows = chosen.numpy()",
            "        import os\n        rows = chosen.numpy() - int(os.environ['RANK'])",
            "each_time",
            "A batch of the train split depends on the rank: .*line [0-9]+: rows = chosen.numpy",
        ),
        (
            "workload.py",
            'loss = functional.cross_entropy(answers, inside, reduction="sum")',
            "loss = functional.cross_entropy(answers, inside)",
            "add_up",
            "The sum loss can't be added up: .* in three parts .*workload.py, line [0-9]+: ",
        ),
        (
            "workload.py",
            "wide = self._model.hidden",
            "wide = self._model.hidden\n        torch.manual_seed(int(np.random.rand() * 1e9))",
            "first_weights",
            "The first weights differ from rank to rank .*workload.py, line [0-9]+: torch.manual_seed",
        ),
        (
            "prepare.py",
            "np.random.default_rng(data.seed)",
            "np.random.default_rng()",
            "same_bytes",
            "Preparing the same data again gives other files: .*train.arrow.*, line [0-9]+: points = ",
        ),
    ],
)
def test_a_broken_promise_is_named_with_its_line(
    tmp_path: Path, file: str, old: str, new: str, check: str, said: str
) -> None:
    folder = shutil.copytree(HERE / "points", tmp_path / "points")
    shutil.copy(HERE / "points.yml", tmp_path)
    code = folder / file
    assert old in code.read_text(encoding="utf-8")
    code.write_text(code.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    done = conformance(str(folder), "-k", check)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(said, done.stdout), done.stdout


def test_a_workload_that_refuses_little_data_is_told_so(tmp_path: Path) -> None:
    folder = shutil.copytree(HERE / "points", tmp_path / "points")
    shutil.copy(HERE / "points.yml", tmp_path)
    settings = folder / "settings.py"
    code, last = settings.read_text(encoding="utf-8"), "    radius: float"
    assert last in code
    settings.write_text(code.replace(last, f"    train: int = Field(ge=100)\n{last}"), encoding="utf-8")
    done = conformance(str(folder))
    assert done.returncode == 2 and "The checks take little data" in done.stdout


def test_what_can_not_be_tested_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = conformance("")
    assert done.returncode == 2 and "Which workload? make conformance WORKLOAD=" in done.stdout
    done = conformance("absent")
    assert done.returncode == 2
    assert "There is no matrix 'absent'" in done.stdout
    script = tmp_path / "script.yml"
    axes = "axes: {stack: [ddp], workers: [1], epochs: [1], seed: [1]}\n"
    script.write_text(f"name: script\nscript: train.py\ndata: {{train: 64}}\n{axes}", encoding="utf-8")
    (tmp_path / "train.py").touch()
    done = conformance("script", "--matrix", str(script))
    assert done.returncode == 2 and "train.py brings a loop of its own" in done.stdout
    done = conformance(str(tmp_path / "mine"))
    assert done.returncode == 2 and "There is no matrix" in done.stdout
