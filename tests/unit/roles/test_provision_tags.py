"""What --tags leaves out of playbooks/provision.yml: never the lock, and never a preliminary check."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import ROOT
from tests.unit.roles.test_preflight import inventory, playbook

ALWAYS = {
    "Check the inventory": "preflight : Stop if the inventory has problems",
    "Check the nodes": "preflight : Stop if there are problems, before anything is changed",
    "Check what can be installed": "preflight : Stop if a required stack is unavailable",
    "Take the cluster's lock": "cluster_lock : Take or release the lock",
    "Release the cluster's lock": "cluster_lock : Take or release the lock",
}


def listed(*arguments: str) -> dict[str, list[str]]:
    """The tasks of each play that would run with these options."""
    done = playbook(
        "playbooks/provision.yml", "--list-tasks", *arguments, inventory=str(ROOT / "inventory/testbed")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    plays: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if play := re.match(r"  play #\d+ \(.*?\): (.*?)\tTAGS", line):
            plays[play[1]] = []
        elif task := re.match(r"      (.*?)\tTAGS", line):
            plays[list(plays)[-1]].append(task[1])
    return plays


@pytest.fixture(scope="module")
def whole() -> dict[str, list[str]]:
    """All tasks that are known before anything runs."""
    return listed()


@pytest.mark.parametrize("tag", ["install", "configure", "run"])
def test_a_step_by_itself_takes_the_lock_and_reaches_the_stacks(
    tag: str, whole: dict[str, list[str]]
) -> None:
    plays = listed("--tags", tag)
    for play, task in ALWAYS.items():
        assert task in plays[play] and plays[play] == whole[play], (play, plays[play])
    assert "Install every stack" in plays["Install the stacks"]
    names = list(plays)
    assert names.index("Take the cluster's lock") < names.index("Set up the nodes")
    assert names[-1] == "Release the cluster's lock"


def test_steps_are_told_apart(whole: dict[str, list[str]]) -> None:
    nodes = {tag: set(listed("--tags", tag)["Set up the nodes"]) for tag in ("install", "configure", "run")}
    assert "docker : Install the engine" in nodes["install"] - nodes["configure"] - nodes["run"]
    assert "docker : Configure the engine" in nodes["configure"] - nodes["install"] - nodes["run"]
    assert "docker : Wait for the engine" in nodes["run"] - nodes["install"] - nodes["configure"]
    # Configuring also brings the configuration into effect.
    assert "docker : Run the engine" in nodes["configure"] & nodes["run"]
    # Every task belongs to a step; otherwise each step by itself would leave it out.
    assert set.union(*nodes.values()) == set(whole["Set up the nodes"])


def test_a_step_by_itself_is_refused_as_the_whole_is(tmp_path: Path) -> None:
    done = playbook(
        "playbooks/provision.yml", "--tags", "configure", inventory=inventory(tmp_path, ["a", "b"], ["w1"])
    )
    assert done.returncode != 0
    assert "The inventory has 2 masters (a, b)" in re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_a_tag_that_nothing_has_is_refused(tmp_path: Path) -> None:
    nowhere = inventory(tmp_path, ["a"], ["w1"])
    done = playbook("playbooks/provision.yml", "--tags", "sparc", inventory=nowhere)
    said = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert done.returncode != 0
    assert "1 problem: - --tags sparc would do nothing: give steps" in said


def test_a_limit_skips_no_check_of_the_inventory(tmp_path: Path) -> None:
    nowhere = inventory(tmp_path, ["a", "b"], ["w1"])
    done = playbook("playbooks/provision.yml", "--limit", "w1", inventory=nowhere)
    assert done.returncode != 0 and "The inventory has 2 masters (a, b)" in done.stdout


NOTE: dict[str, Any] = {
    "nodes": {
        name: {"address": name, "host": name, "port": 22, "user": "", "machine_id": "", "groups": [group]}
        for name, group in (("m", "master"), ("w1", "workers"), ("w2", "workers"))
    },
    "environment": {"key": "k1", "digest": "d1"},
    "image": "m:5000/trainbed@sha256:1",
    "variant": "cu126",
    "stacks": ["ddp"],
    "left_out": {"determined": "no packages"},
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """An inventory whose three nodes are this machine, a play that does what preflight does, and a note."""
    common = tmp_path / "site" / "group_vars" / "all"
    common.mkdir(parents=True)
    (common / "00-common").symlink_to(ROOT / "inventory" / "common")
    groups: dict[str, Any] = {
        "master": {"hosts": {"m": {}}},
        "workers": {"hosts": {"w1": {}, "w2": {}, "w3": {}}},
    }
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "stacks_optional": ["determined"],
        "preflight_note": str(tmp_path / "note.json"),
        # Of the checks, only those of parts: these nodes are one machine, and none that could be set up.
        "preflight_node_checks": [],
        "preflight_needs_unmet": [],
        "preflight_cluster_checks": [],
        "preflight_cluster_unlike": [],
        "shared_storage_path": str(tmp_path),
    }
    children = {"cluster": {"children": groups}}
    (tmp_path / "site" / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": children}}))
    (tmp_path / "variables.json").write_text(json.dumps(variables))
    tasks = [
        {"ansible.builtin.import_role": {"name": "preflight", "tasks_from": "nodes"}, "name": "Check"},
        {
            "name": "Say",
            "ansible.builtin.debug": {
                "msg": "{{ inventory_hostname }} {{ environment_fetched.digest }} {{ image_wanted }} "
                "{{ stacks_left_out | list }} {{ preflight_outside }}"
            },
        },
    ]
    play = {"hosts": "cluster", "gather_facts": False, "tasks": tasks, "tags": ["always"]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    return tmp_path


def checked(here: Path, *arguments: str, noted: bool = True) -> str:
    """What that play says."""
    if noted:
        (here / "note.json").write_text(json.dumps(NOTE))
    done = playbook(
        str(here / "play.yml"), "-e", f"@{here}/variables.json", *arguments, inventory=str(here / "site")
    )
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_a_part_knows_the_rest_from_what_the_master_noted(here: Path) -> None:
    said = checked(here, "--limit", "w1")
    assert "w1 d1 m:5000/trainbed@sha256:1 ['determined'] ['m', 'w2', 'w3']" in said, said
    # With the master there, what is left out is decided anew.
    assert "w1 d1 m:5000/trainbed@sha256:1 [] []" in checked(here, "--tags", "spark")


def test_a_part_of_a_cluster_that_was_never_whole_is_refused(here: Path) -> None:
    for part in (["--limit", "w1"], ["--tags", "docker"]):
        assert "1 problem: - This cluster has not been set up as a whole yet" in checked(
            here, *part, noted=False
        )
    assert " problem:" not in checked(here, "--tags", "install", noted=False)


def test_a_node_that_the_master_does_not_know_needs_the_master(here: Path) -> None:
    said = checked(here, "--limit", "w3")
    assert (
        "w3 is new to the master, or has another address than it noted: add the master to --limit (m,w3)"
        in said
    )
    assert " problem:" not in checked(here, "--limit", "m,w3")


def test_what_changed_in_the_inventory_is_said_before_anything_is_done(here: Path) -> None:
    left = {**NOTE["nodes"]["w1"], "address": "192.0.2.9", "machine_id": "other"}
    (here / "note.json").write_text(json.dumps({**NOTE, "nodes": {**NOTE["nodes"], "w9": left}}))
    said = "w9 is no longer in the inventory of this cluster: "
    assert f"{said}its services will be stopped" in checked(here, noted=False)
    assert f"{said}the next whole provisioning" in checked(here, "--tags", "spark", noted=False)


@pytest.mark.parametrize(
    ("tags", "done"),
    [
        ("one", ["one install", "one nested", "one called"]),
        ("two", ["two install", "two nested", "two called"]),
        ("configure", ["one nested", "one called", "two nested", "two called"]),
        ("docker", []),
        ("all", ["one install", "one nested", "one called", "two install", "two nested", "two called"]),
    ],
)
def test_a_stacks_name_selects_all_that_it_does_and_nothing_of_others(
    tmp_path: Path, tags: str, done: list[str]
) -> None:
    plays = yaml.safe_load((ROOT / "playbooks/provision.yml").read_text(encoding="utf-8"))
    (task,) = [
        task for play in plays for task in play.get("tasks", []) if task["name"] == "Install every stack"
    ]
    for name, called in (("one", True), ("two", True), ("helper", False)):
        folder = tmp_path / "roles" / name / "tasks"
        folder.mkdir(parents=True)
        say = {"ansible.builtin.debug": {"msg": "{{ stack }} install"}, "tags": ["install"]}
        nested = {"ansible.builtin.include_tasks": "nested.yml", "tags": ["install", "configure", "run"]}
        call = {"ansible.builtin.include_role": {"name": "helper"}, "tags": ["configure"]}
        (folder / "main.yml").write_text(
            yaml.safe_dump([say, nested, call] if called else [
                {"ansible.builtin.debug": {"msg": "{{ stack }} called"}, "tags": ["configure"]}
            ])
        )  # fmt: skip
        inner = {"ansible.builtin.debug": {"msg": "{{ stack }} nested"}, "tags": ["configure"]}
        (folder / "nested.yml").write_text(yaml.safe_dump([inner]))
    variables = {"stacks": ["one"], "stacks_optional": ["two"], "stacks_left_out": {}}
    play = {"hosts": "localhost", "gather_facts": False, "become": False, "vars": variables, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    played = playbook(str(tmp_path / "play.yml"), "--tags", tags, inventory="localhost,")
    assert re.findall(r"msg: (.*)", played.stdout) == done, played.stdout
