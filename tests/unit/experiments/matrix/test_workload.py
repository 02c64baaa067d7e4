"""A matrix whose workload lies beside it."""

from __future__ import annotations

import shutil
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from experiments.campaign.code_archive import training_archive
from experiments.campaign.plan import make_plan
from experiments.cluster.description import Cluster
from experiments.matrix.loading import load_matrix
from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.made_up_workplace import Workplace
from training.spec import Work

POINTS = REPOSITORY / "tests" / "unit" / "training" / "workloads" / "points"
MATRIX = """\
name: small
workload: ./points
data:
  train: 64
  validation: 16
  seed: 1
defaults:
  model: {hidden: 4}
axes:
  stack: [ddp]
  workers: [1, 2]
  epochs: [1]
  seed: [1]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(POINTS, tmp_path / "points")
    return tmp_path


def load(folder: Path, old: str = "", new: str = "") -> str:
    path = folder / "small.yml"
    path.write_text(MATRIX.replace(old, new) if old else MATRIX, encoding="utf-8")
    return str(path)


def test_its_runs_know_it_by_its_content_and_bring_it_along(workplace: Workplace, folder: Path) -> None:
    cluster = Cluster.model_validate_json((workplace.cluster_folder / "cluster.json").read_bytes())
    matrix = load_matrix(load(folder))
    works = [run.specification.work for run in make_plan(matrix, cluster, "a" * 64)]
    assert {work.model.text(work.data) for work in works} == {"two layers, 4 wide"}
    assert {work.workload for work in works} == {"points"}
    plain = set(zipfile.ZipFile(BytesIO(training_archive(REPOSITORY))).namelist())
    names = set(zipfile.ZipFile(BytesIO(training_archive(REPOSITORY, matrix.workload_folder))).namelist())
    files = {
        f"training/workloads/points/{name}.py" for name in ("__init__", "settings", "prepare", "workload")
    }
    assert names - plain == files

    (folder / "points" / "words.txt").write_text("one more file", encoding="utf-8")
    changed = load_matrix(load(folder))
    (other,) = {run.specification.work.workload_digest for run in make_plan(changed, cluster, "a" * 64)}
    assert other not in {work.workload_digest for work in works}
    assert Work.model_validate(works[0].model_dump()).model_dump() == works[0].model_dump()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("./points", "./absent", "line 2: The folder .*absent is no workload: it has no settings.py and no"),
        ("./points", "points2", "line 2 is not valid: workload: There is no workload points2: give one of"),
        ("seed: 1\ndef", "seed: 1\n  radius: 0\ndef", "line 7 is not valid: data.radius: input should be"),
        ("hidden: 4", "hidden: 0", "line 8 is not valid: work.model.hidden: input should be greater"),
        ("data:", "workload_digest: x\ndata:", "line 3: workload_digest is found out, not given; remove it"),
        ("  stack:", "  workload: [x]\n  stack:", "axes.workload comes from `workload` at the top"),
    ],
)
def test_what_is_wrong_with_it_is_said_with_its_line(folder: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_matrix(load(folder, old, new))


SCRIPT = """\
name: small
script: train.py
data: {include: [corpus.csv], train: 64}
defaults:
  model: {arguments: ["--epochs={epochs}"]}
axes: {stack: [ddp], workers: [1], epochs: [1], seed: [1]}
"""


def test_a_script_is_short_for_the_workload_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "small.yml"
    path.write_text(SCRIPT, encoding="utf-8")
    matrix = load_matrix(str(path))
    assert (matrix.workload, matrix.data.files) == ("script", ("train.py", "corpus.csv"))
    path.write_text(
        SCRIPT.replace("script: train.py", "workload: script").replace(
            "{include", "{script: train.py, include"
        ),
        encoding="utf-8",
    )
    assert load_matrix(str(path)).content() == matrix.content()
    for old, new, said in (
        (
            "script: train.py",
            "script: train.py\nworkload: causal-lm",
            r"small\.yml, line 2: script stands for",
        ),
        ("{include", "{script: other.py, include", r"small\.yml, line 2: script stands for workload: script"),
        ("script: train.py", "script: ../train.py", r"\.\./train\.py must lie beside the matrix"),
        ("{epochs}", "{epoch}", r"there is no \{epoch\} to put in"),
    ):
        path.write_text(SCRIPT.replace(old, new), encoding="utf-8")
        with pytest.raises(UserError, match=said):
            load_matrix(str(path))
