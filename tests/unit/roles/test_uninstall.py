"""Taking a stack out: what is refused, what the master notes, and what happens where a role fails."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import load, value_of
from tests.unit.roles.test_preflight import playbook

stacks_with = load("roles/preflight/lookup_plugins/stacks_with.py").stacks_with
preflight = load("roles/preflight/filter_plugins/preflight.py")

NOTED = {"stacks": ["ddp", "toy"], "left_out": {"spark": "no reason"}}
WHY = "It was taken out of the cluster (make uninstall); make provision installs it again."
NOTED_THEN = {"stacks": ["ddp"], "left_out": {"spark": "no reason", "toy": WHY}}


@dataclasses.dataclass
class Said:
    """What came of a command; line breaks in its output are spaces."""

    code: int
    output: str

    def changed(self) -> int:
        """Changes on all nodes."""
        return sum(int(count) for count in re.findall(r"changed=(\d+)", self.output))


@dataclasses.dataclass
class Site:
    """A cluster whose nodes are all this machine, with stacks that do nothing but leave marks."""

    folder: Path

    def uninstall(self, *arguments: str, stack: str = "toy", data: str = "") -> Said:
        """Play the playbook as make does."""
        asked = json.dumps({"uninstall_stack": stack, "uninstall_data": data})
        done = playbook(
            "playbooks/uninstall.yml", "-e", asked, *arguments, inventory=str(self.folder / "hosts.yml")
        )
        return Said(done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr))

    def note(self, name: str) -> Any:
        """One of the master's notes."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def marks(self) -> list[str]:
        """What the role has done, and on which node."""
        return sorted(path.name for path in (self.folder / "marks").iterdir())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "stacks": ["ddp", "toy"],
        "stacks_optional": ["spark"],
        "cluster_lock_path": str(tmp_path / "lock"),
        "preflight_note": str(tmp_path / "cluster.json"),
        "preflight_stacks_note": str(tmp_path / "stacks.json"),
        "preflight_foreign_variables": ["cluster_lock_path"],
    }
    groups: dict[str, Any] = {"master": {"hosts": {"m": {}}}, "workers": {"hosts": {"w1": {}, "w2": {}}}}
    inventory = {"all": {"vars": variables, "children": {"cluster": {"children": groups}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    mark = {"path": f"{tmp_path}/marks/{{{{ inventory_hostname }}}}-{{{{ remove_data }}}}", "content": ""}
    tasks = [
        {
            "name": "Look at the lock",
            "ansible.builtin.stat": {"path": f"{tmp_path}/lock"},
            "register": "held",
        },
        {
            "name": "Fail",
            "ansible.builtin.fail": {"msg": "This worker is broken."},
            "when": f"inventory_hostname == 'w2' and '{tmp_path}/broken' is file",
        },
        {
            "name": "Leave a mark",
            "ansible.builtin.copy": {"dest": mark["path"], "content": "", "mode": "0644"},
            "when": "held.stat.exists or ansible_check_mode",
        },
    ]
    for stack, removable in (("toy", True), ("bare", False)):
        folder = tmp_path / "outside" / "roles" / stack / "tasks"
        folder.mkdir(parents=True)
        (folder / "run.yml").write_text("[]\n", encoding="utf-8")
        if removable:
            (folder / "remove.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")
    (tmp_path / "marks").mkdir()
    for name, more in (("stacks.json", {}), ("cluster.json", {"nodes": {"m": {"address": "m"}}})):
        (tmp_path / name).write_text(json.dumps({**NOTED, **more}), encoding="utf-8")
    monkeypatch.setenv("TRAINBED_STACKS", str(tmp_path / "outside"))
    return Site(tmp_path)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"stack": ""}, "No stack is named: run `make uninstall STACK=name`; these can be taken out: "),
        (
            {"stack": "tpy"},
            "There is no stack tpy: the stacks are bare, ddp, determined, spark, spark35, toy.",
        ),
        (
            {"stack": "bare"},
            "The stack bare can't be taken out, because its role has no tasks/remove.yml; stacks that have "
            "one: determined, toy.",
        ),
        ({"data": "all"}, "DATA is 'all', and must be 'remove', or empty to keep the stack's data."),
    ],
    ids=["unnamed", "unknown", "not-removable", "data"],
)
def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(
    site: Site, given: dict[str, str], sentence: str
) -> None:
    said = site.uninstall(**given)
    assert said.code != 0
    assert f"1 problem: - {sentence}" in said.output
    assert (site.marks(), site.note("stacks.json"), said.changed()) == ([], NOTED, 0)


def test_a_part_of_the_cluster_is_refused(site: Site) -> None:
    said = site.uninstall("--limit", "w1,localhost")
    assert said.code != 0
    assert "1 problem: - A stack is taken out of the whole cluster: leave out --limit." in said.output
    assert site.marks() == [] and site.note("stacks.json") == NOTED


def test_it_is_done_on_every_node_under_the_lock_and_noted(site: Site) -> None:
    said = site.uninstall()
    assert said.code == 0, said.output
    assert site.marks() == ["m-False", "w1-False", "w2-False"]
    assert site.note("stacks.json") == NOTED_THEN
    assert site.note("cluster.json") == {**NOTED_THEN, "nodes": {"m": {"address": "m"}}}
    assert (site.folder / "cluster.json").stat().st_mode & 0o777 == 0o600
    assert not (site.folder / "lock").exists()
    assert "The inventory still has toy in stacks: take it out there, or the next" in said.output
    notes = (site.folder / "stacks.json").read_bytes()

    again = site.uninstall()
    assert again.code == 0 and (site.folder / "stacks.json").read_bytes() == notes
    # The lock is taken and released, which is no change of the cluster.
    assert again.changed() == 0, again.output


def test_the_role_is_told_to_remove_its_data(site: Site) -> None:
    assert site.uninstall(data="remove").code == 0
    assert site.marks() == ["m-True", "w1-True", "w2-True"]


def test_check_mode_says_what_would_change_and_changes_nothing(site: Site) -> None:
    said = site.uninstall("--check")
    assert said.code == 0, said.output
    assert said.changed() == 4
    assert (site.marks(), site.note("stacks.json")) == ([], NOTED)


def test_a_node_that_fails_leaves_no_lock_and_no_plan_that_counts_on_the_stack(site: Site) -> None:
    (site.folder / "broken").touch()
    said = site.uninstall()
    assert said.code != 0 and "1 problem: - This worker is broken." in said.output
    assert not (site.folder / "lock").exists()
    assert site.note("stacks.json") == NOTED_THEN
    (site.folder / "broken").unlink()
    assert site.uninstall().code == 0
    assert site.marks() == ["m-False", "w1-False", "w2-False"]


def test_a_cluster_that_somebody_else_uses_is_left_alone(site: Site) -> None:
    holder = {"verb": "run", "user": "ada", "host": "elsewhere", "machine_id": "x", "pid": 1, "since": "now"}
    (site.folder / "lock").write_text(json.dumps(holder), encoding="utf-8")
    said = site.uninstall()
    assert said.code != 0 and "The cluster is in use: 'run' by ada on elsewhere" in said.output
    assert site.marks() == [] and site.note("stacks.json") == NOTED
    assert json.loads((site.folder / "lock").read_text(encoding="utf-8")) == holder


def test_a_cluster_without_notes_gets_none(site: Site) -> None:
    for name in ("stacks.json", "cluster.json"):
        (site.folder / name).unlink()
    assert site.uninstall().code == 0
    assert not (site.folder / "stacks.json").exists() and not (site.folder / "cluster.json").exists()


def test_stacks_are_roles_that_launch_and_the_first_of_a_name_counts(tmp_path: Path) -> None:
    for path in ("a/one/tasks/run.yml", "a/helper/tasks/remove.yml", "b/one/tasks/remove.yml"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    (tmp_path / "b/one/tasks/run.yml").touch()
    folders = [str(tmp_path / "none"), str(tmp_path / "a"), str(tmp_path / "b")]
    assert stacks_with(folders, "tasks/run.yml") == ["one"]
    assert stacks_with(folders, "tasks/remove.yml") == []
    assert stacks_with(folders[::-1], "tasks/remove.yml") == ["one"]


def test_what_was_noted_stays_unless_it_has_the_stack() -> None:
    assert preflight.preflight_without(NOTED, "toy") == NOTED_THEN
    assert preflight.preflight_without(NOTED_THEN, "toy") == NOTED_THEN
    # Why it was left out before is not forgotten.
    assert preflight.preflight_without(NOTED, "spark") == NOTED


@pytest.mark.parametrize(
    ("databases", "own", "others"),
    [
        (["postgres", "determined"], ["determined"], []),
        (
            ["postgres", "determined", "determined_before_20260102T030405Z", "determined_restored"],
            ["determined", "determined_before_20260102T030405Z", "determined_restored"],
            [],
        ),
        (["postgres", "lab", "determined_copy"], [], ["lab", "determined_copy"]),
        (["postgres", "undetermined"], [], ["undetermined"]),
    ],
)
def test_only_databases_that_the_role_made_are_removed(
    databases: list[str], own: list[str], others: list[str]
) -> None:
    given = {"postgresql_databases": {"stdout_lines": databases}, "postgresql_database": "determined"}
    variables = "roles/postgresql/vars/main.yml"
    assert value_of("postgresql_databases_own", variables, **given) == own
    assert value_of("postgresql_databases_others", variables, **given) == others
    assert value_of("postgresql_server_removable", variables, **given) is not bool(others)
    assert value_of("postgresql_server_removable", variables, postgresql_databases={"skipped": True}) is False


def test_only_dumps_that_the_role_made_are_removed() -> None:
    own = ["determined-20260102T030405Z.dump", ".determined-20260102T030405Z.dump.part"]
    others = ["determined.dump", "lab-20260102T030405Z.dump", "determined-mine.dump", "notes"]
    files = [{"path": f"/var/backups/trainbed/{name}"} for name in [*own, *others]]
    given = {"postgresql_backups": {"files": files}, "postgresql_database": "determined"}
    variables = "roles/postgresql/vars/main.yml"
    assert value_of("postgresql_dumps_own", variables, **given) == [each["path"] for each in files[:2]]
    left = value_of("postgresql_dumps_others", variables, **given)
    assert sorted(left) == sorted(each["path"] for each in files[2:])


def test_packages_of_others_that_would_go_are_found() -> None:
    lines = ["The following packages will be REMOVED:", "Purg lab-tool [1.0]", "Purg postgresql-15 [15.1]"]
    given = {
        "postgresql_purge": {"stdout_lines": [*lines, "Purg postgresql-common [248]", "Remv other [2]"]},
        "postgresql_version": "15",
    }
    variables = "roles/postgresql/vars/main.yml"
    assert value_of("postgresql_packages_needing", variables, **given) == ["lab-tool", "other"]
    given["postgresql_purge"] = {"skipped": True}
    assert value_of("postgresql_packages_needing", variables, **given) == []
