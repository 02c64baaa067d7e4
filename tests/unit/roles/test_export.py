"""Exporting a run's model and fetching it, by the role itself on this machine."""

from __future__ import annotations

import json
import os
import pwd
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.standins import systemd
from tests.unit.roles.loading import ROOT, value_of
from tests.unit.roles.test_runs import played

#: In place of the environment's Python with torch: writes what it is told to, where the model belongs.
PYTHON = """\
#!{python} -SE
import json, os, sys
from pathlib import Path
place = Path({place!r})
(place / "called.json").write_text(json.dumps([os.getcwd(), sys.argv[1:]]))
print("loading the weights", flush=True)
if (place / "fault").exists():
    sys.exit((place / "fault").read_text())
to = Path(sys.argv[sys.argv.index("--to") + 1])
to.mkdir(mode=0o755)
(to / "trainbed.json").write_text("{{}}")
(to / "model.safetensors").write_bytes(bytes(range(256)) * 20000)
if (place / "link").exists():
    (to / "vocabulary.txt").symlink_to(place / "link")
"""


class Cluster:
    """A master with a run's folder, and stand-ins for systemd and the environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.run_dir = folder / "runs" / "some-run" / "20261121T114500Z-01"
        self.run_dir.mkdir(parents=True)
        (folder / "environment" / "bin").mkdir(parents=True)
        (folder / "environment" / "DIGEST").write_text("e" * 64 + "\n")
        (folder / "code").mkdir()
        with zipfile.ZipFile(folder / "sent.zip", "w") as archive:
            archive.writestr("training/__init__.py", "")
        systemd.install(folder)
        python = folder / "environment/bin/python"
        python.write_text(PYTHON.format(python=sys.executable, place=str(folder)))
        python.chmod(0o755)

    def export(self) -> tuple[int, str]:
        """Calls the role; returns its exit status and its output on one line."""
        variables: dict[str, Any] = {
            "run_dir": str(self.run_dir),
            "run_data": str(self.folder / "data"),
            "run_code": str(self.folder / "code" / "abc"),
            "run_code_archive": str(self.folder / "sent.zip"),
            "run_suffix": "",
            "export_dest": str(self.home),
            "export_made_on": "lab",
            "export_environment": str(self.folder / "environment"),
            "export_place": str(self.folder / "place"),
            "runs_user": pwd.getpwuid(os.getuid()).pw_name,
        }
        return played("export", "main", self.folder, variables)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return Cluster(tmp_path)


def test_a_model_is_exported_by_the_training_user_and_comes_home(cluster: Cluster) -> None:
    leftover = cluster.folder / "place" / "work" / "exported"
    leftover.mkdir(parents=True)
    (leftover / "half").touch()
    status, said = cluster.export()
    assert status == 0, said

    files = {path.relative_to(cluster.home).as_posix() for path in cluster.home.rglob("*") if path.is_file()}
    model = cluster.home / "exported"
    assert files == {"DIGEST", "export.log", "exported/trainbed.json", "exported/model.safetensors"}
    assert (model / "model.safetensors").read_bytes() == bytes(range(256)) * 20000
    assert (cluster.home / "DIGEST").read_text().strip() == "e" * 64
    assert (cluster.home / "export.log").read_text() == "loading the weights\n"

    code = cluster.folder / "code" / "abc"  # it was not there any more
    assert (code / "training.zip").exists() and (code / "training" / "__init__.py").exists()
    where, arguments = json.loads((cluster.folder / "called.json").read_text())
    assert where == str(code) and arguments[:3] == ["-m", "training", "export"]
    assert dict(zip(arguments[3::2], arguments[4::2], strict=True)) == {
        "--spec": f"{cluster.run_dir}/spec.json",
        "--data": f"{cluster.folder}/data",
        "--out": str(cluster.run_dir),
        "--to": f"{cluster.folder}/place/made/exported",
    }
    unit = (cluster.folder / "unit").read_text(encoding="utf-8").splitlines()
    assert f"--uid={pwd.getpwuid(os.getuid()).pw_name}" in unit
    assert not (cluster.folder / "place").exists()


def test_a_run_whose_folder_is_gone_is_said_to_be(cluster: Cluster) -> None:
    cluster.run_dir.rmdir()
    status, said = cluster.export()
    assert status != 0 and not cluster.home.exists()
    assert f"The run's folder {cluster.run_dir} is gone: it was removed, or the run was made on an" in said
    assert "(its inventory was lab; ANSIBLE_INVENTORY chooses one)" in said


def test_what_the_export_says_is_the_reason(cluster: Cluster) -> None:
    sentence = "The run has neither a model (save: last, or best) nor a good checkpoint."
    (cluster.folder / "fault").write_text(f"Traceback\n{sentence}")
    status, said = cluster.export()
    assert status != 0 and sentence in said
    assert not cluster.home.exists() and not (cluster.folder / "place").exists()


def test_a_part_that_cannot_be_fetched_is_not_left_out_silently(cluster: Cluster) -> None:
    (cluster.folder / "link").touch()
    status, said = cluster.export()
    assert status != 0
    assert "can't be fetched, because it is no file: exported/vocabulary.txt." in said


def test_what_a_killed_controller_leaves_of_an_export_is_ended_before_runs() -> None:
    (task, *_) = yaml.safe_load((ROOT / "roles/runs/tasks/ready.yml").read_text(encoding="utf-8"))
    units = task["run_node"]["units"].removeprefix("{{").removesuffix("}}")
    leftovers = [{"units": ["some*.service"]}, {"units": []}]
    found = value_of(units, "roles/runs/vars/main.yml", runs_leftovers=leftovers)
    exports = value_of("runs_export_unit", "roles/runs/vars/main.yml")
    assert found == ["trainbed-prepare.service", f"{exports}.service", "some*.service"]
