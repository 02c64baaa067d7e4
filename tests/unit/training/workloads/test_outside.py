"""A user's own workload, in a folder outside of the package."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from experiments.campaign.code_archive import build_archive
from tests.unit.training.training_helpers import Run, events, load, run_on
from training.data.prepare import Place, Prepared, prepare
from training.errors import WorkloadError
from training.registry import Outside, register
from training.spec import Conditions, DataSpec, RunSpec, Work, explain
from training.util.digest import code_digest, folder_digest

ROOT = Path(__file__).parents[4]
POINTS = Path(__file__).parent / "points"
DATA = {"train": 61, "validation": 23, "seed": 4}
WORK = {"epochs": 2, "batch_per_worker": 6, "gradient_accumulation": 2, "last_batch": "drop"}


@pytest.fixture
def points() -> Iterator[Outside]:
    yield register(POINTS)


def prepared(points: Outside, out: Path) -> tuple[DataSpec, Prepared]:
    spec = DataSpec.model_validate({"workload": points.name, "workload_digest": points.digest, "data": DATA})
    return spec, prepare(spec, Place(), out)


def test_its_settings_are_its_own_and_its_content_is_part_of_the_work(points: Outside) -> None:
    fields = {"workload": "points", "workload_digest": points.digest, "data": DATA, "data_digest": "0" * 64}
    work = Work.model_validate(fields | {"workers": 1, "epochs": 1, "seed": 1, "model": {"hidden": 3}})
    assert work.model.text(work.data) == "two layers, 3 wide"
    assert Work.model_validate_json(work.model_dump_json()) == work
    with pytest.raises(ValidationError) as caught:
        Work.model_validate(work.model_dump() | {"data": DATA | {"radius": 0}, "model": {"layers": 1}})
    said = explain(caught.value)
    assert "data.radius: input should be greater than 0" in said and "model.layers: is not a known" in said
    with pytest.raises(ValidationError, match="makes tokens of single texts"):
        RunSpec(stack="ddp", work=work, conditions=Conditions(tokenizing="in_loop"))


def test_a_record_of_one_that_is_not_at_hand_stays_readable_with_its_digest(points: Outside) -> None:
    fields = {"workload": "points", "workload_digest": points.digest, "data": DATA, "data_digest": "0" * 64}
    work = Work.model_validate(fields | {"workers": 1, "epochs": 1, "seed": 1})
    text = work.model_dump_json().replace('"points"', '"lines"')
    digest = json.loads(text)["workload_digest"]
    gone = Work.model_validate_json(text)
    assert (gone.workload, gone.workload_digest) == ("lines", digest)
    assert gone.model_dump(mode="json") == json.loads(text)
    assert gone.model.text(gone.data) == "hidden 8, dropout 0.1"


def test_ranks_agree_about_running_means_and_a_resumed_run_ends_with_the_same_weights(
    points: Outside, run: Run, tmp_path: Path
) -> None:
    spec, data = prepared(points, tmp_path / "data")
    wanted = run_on(spec, data, **WORK | {"workers": 2, "checkpoint_every_steps": 3, "keep_checkpoints": 100})
    whole, statuses = run(wanted, data.path)
    assert statuses == [0, 0]
    assert load(whole / "result.json")["validation_count"] == 23
    start = next(each for each in events(whole) if each["event"] == "start")
    assert start["data"] == "made-up points: 61 samples to train, 23 to validate"
    checkpoints = sorted((whole / "checkpoints").iterdir())
    assert len(checkpoints) == 3
    for number in range(3):
        again = tmp_path / f"again-{number}"
        for checkpoint in checkpoints[: number + 1]:
            shutil.copytree(checkpoint, again / "checkpoints" / checkpoint.name)
        again, statuses = run(wanted, data.path, again)
        assert statuses == [0, 0]
        assert load(again / "result.json")["weights_digest"] == load(whole / "result.json")["weights_digest"]


def test_it_comes_along_to_processes_that_start_anew(points: Outside, tmp_path: Path) -> None:
    spec, data = prepared(points, tmp_path / "data")
    work, digests = run_on(spec, data, **WORK).work, []
    command = [sys.executable, "-m", "training", "run", "--workload", str(POINTS), "--data", str(data.path)]
    for start in ("fork", "spawn"):
        conditions = {"loader_workers": 1, "loader_start": start}
        wanted = RunSpec.model_validate({"stack": "test", "work": work, "conditions": conditions})
        file, out = tmp_path / f"{start}.json", tmp_path / start
        file.write_text(wanted.model_dump_json(), encoding="utf-8")
        subprocess.run([*command, "--spec", str(file), "--out", str(out)], cwd=ROOT, check=True)
        digests.append(load(out / "result.json")["weights_digest"])
    assert digests[0] == digests[1]


def test_it_runs_from_a_code_archive(points: Outside, tmp_path: Path) -> None:
    spec, data = prepared(points, tmp_path / "data")
    archive = tmp_path / "training.zip"
    archive.write_bytes(build_archive(ROOT / "training", workload=POINTS))
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(run_on(spec, data, **WORK).model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "training", "run", "--spec", str(file), "--data", str(data.path)]
    environment = {"PYTHONPATH": str(archive), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    subprocess.run([*command, "--out", str(out)], cwd=tmp_path, env=environment, check=True)
    assert load(out / "result.json")["status"] == "ok"
    assert load(out / "rank-0.json")["code_digest"] != code_digest()
    archive.write_bytes(build_archive(ROOT / "training"))
    done = subprocess.run([*command, "--out", str(out)], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 1
    assert (
        "The workload points is a user's own and not in this code" in (load(out / "error-0.json")["message"])
    )


def test_one_that_is_changed_is_another(points: Outside, tmp_path: Path) -> None:
    copy = shutil.copytree(POINTS, tmp_path / "points")
    assert folder_digest(copy) == points.digest
    settings = copy / "settings.py"
    settings.write_text(settings.read_text().replace("default=8", "default=9"), encoding="utf-8")
    changed = register(copy)
    assert changed.digest != points.digest
    fields = {
        "workload": "points",
        "data": DATA,
        "data_digest": "0" * 64,
        "workers": 1,
        "epochs": 1,
        "seed": 1,
    }
    wide = [
        Work.model_validate(fields | {"workload_digest": digest}).model_dump()["model"].get("hidden")
        for digest in (changed.digest, points.digest)
    ]
    assert wide == [9, None]


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("Mine", {}, r"can't be named 'Mine': use lower-case letters"),
        ("text-classification", {}, "has the name of a built-in one"),
        ("text_classification", {}, "has the name of a built-in one"),
        ("mine", {}, "is no workload: it has no settings.py and no prepare.py and no workload.py"),
        ("mine", {"settings.py": ""}, "is no workload: it has no prepare.py and no workload.py"),
    ],
)
def test_a_folder_that_is_no_workload_is_said(
    tmp_path: Path, name: str, files: dict[str, str], said: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    with pytest.raises(WorkloadError, match=said):
        register(folder)


@pytest.mark.parametrize(
    ("settings", "workload", "said"),
    [
        (
            "import absent",
            "",
            "The workload mine can't be loaded (settings.py: ModuleNotFoundError: No module",
        ),
        ("1 / 0", "", "The workload mine can't be loaded (settings.py: ZeroDivisionError: division by zero)"),
        ("", "", "The workload mine has no class Data in its settings.py that is a DataSettings"),
    ],
)
def test_settings_that_can_not_be_loaded_are_said(
    tmp_path: Path, settings: str, workload: str, said: str
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "settings.py").write_text(settings, encoding="utf-8")
    for name in ("prepare.py", "workload.py"):
        (folder / name).write_text(workload, encoding="utf-8")
    mine = register(folder)
    with pytest.raises(ValidationError) as caught:
        DataSpec.model_validate({"workload": mine.name, "workload_digest": mine.digest, "data": DATA})
    assert explain(caught.value).startswith(f"Not a valid DataSpec: workload: {said}")


def test_a_class_that_breaks_the_contract_is_said(tmp_path: Path) -> None:
    from training.workload import workload_class

    def complaint(code: str) -> str:
        folder = tmp_path / "mine"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(POINTS, folder)
        with (folder / "workload.py").open("a", encoding="utf-8") as file:
            file.write(code)
        mine = register(folder)
        asked = {"workload": mine.name, "workload_digest": mine.digest, "data": DATA}
        with pytest.raises(WorkloadError) as caught:
            workload_class(DataSpec.model_validate(asked))
        return str(caught.value)

    assert "must have one subclass of training.workload.Workload, but has Points, More" in complaint(
        "\n\nclass More(Points):\n    pass\n"
    )
    assert "The class Points of the workload mine lacks loss." in complaint(
        "\n\nPoints.__abstractmethods__ = frozenset({'loss'})\n"
    )
