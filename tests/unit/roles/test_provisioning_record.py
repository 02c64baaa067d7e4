"""What the callback plugin records when Ansible itself plays a made-up playbook and roles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.cluster.provisioning import Provisioning, parse
from tests.unit.roles.loading import ROOT

ANSIBLE_PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
PLUGINS = "playbooks/callback_plugins"
SECRET = "hunter2"
NOTE = {"name": "Note", "ansible.builtin.copy": {"dest": "{{ place }}-{{ role_name }}", "content": "x"}}
TELL = {
    "name": "Tell",
    "ansible.builtin.set_stats": {
        "aggregate": False,
        "data": {
            "provisioning_told": {
                "inventory": "{{ ansible_inventory_sources | first | basename }}",
                "nodes": "{{ dict(groups['all'] | zip(groups['all'])) }}",
                "variables": {"stacks": ["inner"]},
            },
            "provisioning_environment": "{{ 'e' * 64 }}",
        },
    },
    "run_once": True,
}
ROLES: dict[str, list[dict[str, Any]]] = {
    "inner": [NOTE, {"name": "Look", "ansible.builtin.stat": {"path": "/"}}],
    "outer": [
        NOTE | {"when": "inventory_hostname == 'one'"},
        {"name": "Never", "ansible.builtin.debug": {"msg": "no"}, "when": False},
        {"name": "Wait", "ansible.builtin.command": "sleep 0.2", "changed_when": False},
        {"name": "Call", "ansible.builtin.include_role": {"name": "inner"}},
    ],
    "broken": [{"name": "Fail", "ansible.builtin.command": "false", "when": "inventory_hostname == 'two'"}],
}


class Checkout:
    """A checkout with the plugin, a playbook and roles of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / PLUGINS, root / PLUGINS, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "ansible.cfg", root)
        shutil.copytree(
            ROOT / "experiments" / "util",
            root / "experiments" / "util",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        shutil.copy(ROOT / "experiments" / "__init__.py", root / "experiments")
        for name, tasks in ROLES.items():
            (root / "roles" / name / "tasks").mkdir(parents=True)
            (root / "roles" / name / "tasks" / "main.yml").write_text(yaml.safe_dump(tasks))
        host = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "place": f"{root}/" + "made-{{ inventory_hostname }}",
            "password": SECRET,
        }
        (root / "made").write_text(yaml.safe_dump({"all": {"hosts": {"one": host, "two": host}}}))

    def play(self, *arguments: str, roles: tuple[str, ...] = ("outer", "inner"), **how: Any) -> str:
        """Run the playbook; returns Ansible's output."""
        name, told = how.get("name", "provision"), how.get("told", True)
        play = {"hosts": "all", "gather_facts": False, "become": False, "roles": list(roles)}
        tasks = {"pre_tasks": [TELL]} if told else {}
        (self.root / "playbooks" / f"{name}.yml").write_text(yaml.safe_dump([play | tasks]))
        done = subprocess.run(
            [str(ANSIBLE_PLAYBOOK), "-i", "made", *arguments, f"playbooks/{name}.yml"],
            cwd=self.root,
            env={**os.environ, "ANSIBLE_CONFIG": str(self.root / "ansible.cfg")} | how.get("settings", {}),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout + done.stderr

    def records(self) -> list[Provisioning]:
        """The records; their folder may hold nothing else, logs aside."""
        folder = self.root / "results" / "provisioning"
        paths = sorted(folder.iterdir()) if folder.exists() else []
        assert all(path.name[0].isdigit() and path.suffix in (".json", ".log") for path in paths)
        return [parse(path.read_bytes(), path) for path in paths if path.suffix == ".json"]

    def logs(self) -> list[str]:
        """The texts of the logs, oldest first."""
        folder = self.root / "results" / "provisioning"
        return [path.read_text() for path in sorted(folder.glob("[0-9]*.log"), key=os.path.getmtime)]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


def words_by_line(output: str) -> list[list[str]]:
    return sorted(sorted(line.replace(",", " ").split()) for line in output.splitlines())


def test_roles_are_counted_with_those_that_called_them(checkout: Checkout) -> None:
    output = checkout.play()
    (record,) = checkout.records()
    assert (record.status, record.inventory, record.partial) == ("ok", "made", []), output
    assert record.nodes == {"one": "one", "two": "two"} and record.environment_digest == "e" * 64
    found = {(*done.within, done.role): (done.tasks, done.changed, done.failed) for done in record.roles}
    assert found == {
        ("outer",): (2, {"one": 1}, []),
        ("outer", "inner"): (2, {"one": 1, "two": 1}, []),
        ("inner",): (2, {}, []),  # already done within outer
    }
    by_host = {(*done.within, done.role): done.tasks_by_host for done in record.roles}
    assert by_host == {
        ("outer",): {"one": 2, "two": 1},
        ("outer", "inner"): {"one": 2, "two": 2},
        ("inner",): {"one": 2, "two": 2},
    }
    for done in record.roles:
        assert done.seconds_by_host.keys() == done.tasks_by_host.keys()
        assert all(0 < seconds <= done.seconds for seconds in done.seconds_by_host.values())
    seconds = {(*done.within, done.role): done.seconds for done in record.roles}
    assert seconds["outer",] > 0.2 and min(record.roles[0].seconds_by_host.values()) > 0.2
    assert 0 < sum(seconds.values()) < record.seconds
    assert [done.role for done in record.of(["outer"])] == ["outer", "inner"]
    assert SECRET not in record.model_dump_json()


def test_a_failure_is_recorded_with_its_role_and_host(checkout: Checkout) -> None:
    checkout.play(roles=("inner", "broken"))
    (record,) = checkout.records()
    assert record.status == "failed"
    assert {done.role: done.failed for done in record.roles} == {"inner": [], "broken": ["two"]}


@pytest.mark.parametrize(
    ("arguments", "how"),
    [
        (["--check"], {}),
        ([], {"told": False}),  # nothing was begun
        ([], {"name": "other"}),
    ],
)
def test_what_sets_nothing_up_is_not_recorded(
    checkout: Checkout, arguments: list[str], how: dict[str, Any]
) -> None:
    checkout.play(*arguments, **how)
    assert checkout.records() == []


def test_what_was_left_out_is_said(checkout: Checkout) -> None:
    # An option of ansible-playbook, not of tests: it leaves something out, so the record must name it.
    checkout.play("--limit", "one", "--skip-tags", "never_there")
    (record,) = checkout.records()
    assert record.partial == ["skip_tags=never_there", "subset=one"]


def test_the_output_is_as_without_it(checkout: Checkout) -> None:
    checkout.play()  # from here on nothing changes
    without = checkout.play(settings={"ANSIBLE_CALLBACKS_ENABLED": "minimal"})  # only another plugin
    assert len(checkout.records()) == 1
    # Which of the two nodes answers first is random, and so is their order within a line.
    with_it = re.sub(r"^All details are in .*\n", "", checkout.play(), flags=re.MULTILINE)
    played, told, summary = with_it.partition("Seconds by role:\n")
    assert words_by_line(played) == words_by_line(without)
    assert told and [line.split()[0] for line in summary.split("\n") if line] == ["outer", "inner", "in"]
    assert "PLAY RECAP" in without
    assert len(checkout.records()) == 2
