"""The preflight's messages about unusable inventories, from the playbook itself; no node is reached."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import ROOT

BINARIES = Path(sys.executable).parent


def playbook(*arguments: str, inventory: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BINARIES / "ansible-playbook"), "-i", inventory, *arguments],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def inventory(tmp_path: Path, master: list[str], workers: list[str]) -> str:
    def hosts(names: list[str]) -> dict[str, Any]:
        return {
            "hosts": {
                name: {"ansible_host": "198.18.255.254", "cluster_address": "198.18.255.254"}
                for name in names
            }
        }

    path = tmp_path / "hosts.yml"
    groups = {"master": hosts(master), "workers": hosts(workers)}
    path.write_text(
        yaml.safe_dump({"all": {"children": {"cluster": {"children": groups}}}}), encoding="utf-8"
    )
    return str(path)


@pytest.mark.parametrize(
    ("master", "workers", "sentence"),
    [
        ([], ["w1"], "The inventory has no master: put one host into the group 'master'."),
        (["a", "b"], ["w1"], "The inventory has 2 masters (a, b): leave one host in the group 'master'."),
        (["a"], [], "The inventory has no workers: put at least one host into the group 'workers'."),
    ],
)
def test_an_inventory_that_cannot_work_is_refused(
    tmp_path: Path, master: list[str], workers: list[str], sentence: str
) -> None:
    done = playbook("playbooks/provision.yml", inventory=inventory(tmp_path, master, workers))
    assert done.returncode != 0
    assert sentence in re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_nodes_that_differ_are_named(tmp_path: Path) -> None:
    play = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "connection": "local",
            "become": False,
            "vars_files": [str(ROOT / "roles/preflight/vars/main.yml")],
            "vars": {
                "preflight_reached": ["a", "b"],
                "preflight_pythons": ["3.11", "3.13"],
                "preflight_systems": ["bookworm", "trixie"],
                "found": "{{ preflight_cluster_checks | selectattr('wrong') "
                "| map(attribute='say') | map('trim') | list }}",
            },
            "tasks": [{"name": "Say", "ansible.builtin.debug": {"msg": "{{ found | to_json }}"}}],
        }
    ]
    path = tmp_path / "play.yml"
    path.write_text(json.dumps(play), encoding="utf-8")
    done = playbook(str(path), inventory=inventory(tmp_path, ["a"], ["b"]))
    said = re.sub(r"\s+", " ", done.stdout)
    assert "Python differs between nodes (a: 3.11, b: 3.13)" in said, done.stdout + done.stderr
    assert "The distribution differs between nodes (a: bookworm, b: trixie)" in said
    assert "Two nodes have the same address" in said


@pytest.mark.parametrize("name", ["testbed", "vm", "lab"])
def test_every_playbook_can_be_read_with_both_inventories(name: str) -> None:
    playbooks = sorted(str(path) for path in (ROOT / "playbooks").glob("*.yml"))
    assert playbooks
    done = playbook("--syntax-check", *playbooks, inventory=str(ROOT / "inventory" / name))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_lab_is_never_made_a_testbed() -> None:
    done = playbook("playbooks/testbed.yml", inventory=str(ROOT / "inventory/lab"))
    assert done.returncode != 0
    assert "is not a testbed's" in re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_a_testbed_stays_within_its_own_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_PREFIX", "192.168.1")
    done = playbook("playbooks/testbed.yml", inventory=str(ROOT / "inventory/testbed"))
    assert done.returncode != 0
    assert "within 198.18.0.0/15" in re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.mark.parametrize("name", ["provision", "testbed"])
@pytest.mark.parametrize(("release", "refused"), [("2.18.9", True), ("2.22.0", True), ("2.19.0", False)])
def test_another_ansible_is_one_sentence(tmp_path: Path, name: str, release: str, refused: bool) -> None:
    # Where Ansible is accepted, the inventory is refused: nothing is reached or changed either way.
    nowhere = inventory(tmp_path, [], ["w1"])
    done = playbook(f"playbooks/{name}.yml", "-e", f"preflight_ansible_version={release}", inventory=nowhere)
    said = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert done.returncode != 0
    sentence = f"This is ansible-core {release}, and the playbooks are tested with 2.19 to 2.21"
    assert (sentence in said) == refused, said
    assert ("has no master" in said or "is not a testbed's" in said) != refused, said


def test_the_range_is_that_of_the_controllers_own_ansible() -> None:
    tested = yaml.safe_load((ROOT / "roles/preflight/vars/main.yml").read_text(encoding="utf-8"))
    locked = (ROOT / "requirements/controller.txt").read_text(encoding="utf-8")
    cores = sorted(re.findall(r"^ansible-core==(\d+\.\d+)\.", locked, re.MULTILINE))
    assert [cores[0], cores[-1]] == [tested["preflight_ansible_first"], tested["preflight_ansible_last"]]
