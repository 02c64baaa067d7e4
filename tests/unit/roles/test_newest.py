"""The environment with the newest libraries: who gets it, which runs are in it, and that it goes again."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import ROOT, played_here, value_of
from tests.unit.roles.test_spark35 import HOSTS, STUBS

MAKE = "make lock LIBRARIES=newest VARIANT=cpu"
LINES = [
    "m: artifacts wheels newest",
    *(f"{name}: artifacts named newest" for name in ("m", "w1", "w2")),
    *(f"{name}: python_env main {{path}} k1 d1 {{lock}}" for name in ("m", "w1", "w2")),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tasks, among roles that say what they were called with in the place of all others."""
    for role in ("node", "artifacts", "python_env"):
        tasks = tmp_path / "roles" / role / "tasks"
        tasks.mkdir(parents=True)
        for name, (tag, shown) in STUBS[role].items():
            said = f"{{{{ inventory_hostname }}}}: {role} {name} {shown}."
            stub: list[dict[str, Any]] = [{"ansible.builtin.debug": {"msg": said}, "tags": [tag]}]
            if name == "named":
                told = {"key": "k1", "digest": "d1", "lock": "l1"}
                stub.append({"ansible.builtin.set_fact": {"artifacts_named": told}, "tags": [tag]})
            if name == "fresh":
                stub.append({"ansible.builtin.stat": {"path": "{{ node_mark }}"}, "register": "node_marked"})
                stub[-1]["tags"] = [tag]
            (tasks / f"{name}.yml").write_text(yaml.safe_dump(stub), encoding="utf-8")
    own = tmp_path / "roles/python_env"
    shutil.copy(ROOT / "roles/python_env/tasks/newest.yml", own / "tasks")
    for part, source in (("defaults", "python_env"), ("library", "node")):
        (own / part).symlink_to(ROOT / "roles" / source / part)
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": HOSTS}}), encoding="utf-8")
    return tmp_path


def play(folder: Path, role: str, *options: str, **variables: Any) -> tuple[int, str]:
    """Play a role's tasks/newest.yml as playbooks/provision.yml does, on nodes that are this machine."""
    usual = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "python_env_newest_path": str(folder / "env/newest"),
        "python_env_store": "http://store",
        "environment_fetched": {"key": "k0", "digest": "d0"},
    }
    include = {"name": role, "tasks_from": "newest", "apply": {"tags": [role]}}
    tasks = [{"ansible.builtin.include_role": include, "tags": ["always"]}]
    site = [{"hosts": "cluster", "become": False, "vars": usual | variables, "tasks": tasks}]
    (folder / "play.yml").write_text(yaml.safe_dump(site), encoding="utf-8")
    return played_here(folder / "play.yml", folder / "hosts.yml", *options)


@pytest.mark.parametrize(
    ("options", "first", "lock"),
    [
        ([], "d0", "l1"),
        (["--tags", "install"], "d0", "l1"),
        (["--tags", "python_env"], "d0", "l1"),
        ([], "d1", ""),
    ],
    ids=["all", "install", "the role", "nothing newer"],
)
def test_every_node_gets_it_beside_the_first(folder: Path, options: list[str], first: str, lock: str) -> None:
    fetched = {"key": "k0", "digest": first}
    status, said = play(folder, "python_env", *options, python_env_newest="true", environment_fetched=fetched)
    assert status == 0, said
    for line in LINES:
        assert line.format(path=folder / "env/newest", lock=lock) in said
    assert said.count("artifacts wheels") == 1 and "changed=1" not in said


@pytest.mark.parametrize("options", [["--tags", "configure"], ["--tags", "spark"]])
def test_other_parts_of_provisioning_leave_it_alone(folder: Path, options: list[str]) -> None:
    for asked in (True, False):
        status, said = play(folder, "python_env", *options, python_env_newest=asked)
        assert status == 0 and not [line for line in LINES if line.split(" {")[0] in said], said


def test_check_mode_ends_where_a_node_has_none(folder: Path) -> None:
    status, said = play(folder, "python_env", "--check", python_env_newest=True)
    assert status == 0 and "node fresh" in said and "artifacts wheels" not in said
    (folder / "env/newest").mkdir(parents=True)
    (folder / "env/newest/DIGEST").touch()
    status, said = play(folder, "python_env", "--check", python_env_newest=True)
    assert status == 0 and "artifacts wheels newest" in said


def test_it_goes_once_nobody_asks_for_it(folder: Path) -> None:
    link = folder / "env/newest"
    (folder / "env/d1").mkdir(parents=True)
    link.symlink_to(folder / "env/d1")
    status, said = play(folder, "python_env", "--limit", "w1", "--check")
    assert status == 0 and "changed=1" in said and link.is_symlink()
    status, said = play(folder, "python_env", "--limit", "w1")
    assert status == 0 and "changed=1" in said and not link.is_symlink() and (folder / "env/d1").is_dir()
    assert "artifacts" not in said
    for options in ([], ["--check"]):
        status, said = play(folder, "python_env", *options)
        assert status == 0 and "changed=1" not in said


def test_it_takes_a_lock_of_the_inventorys_own(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": HOSTS}}), encoding="utf-8")
    locks = tmp_path / "locks"
    python = {"ansible_facts": {"python": {"version": {"major": 3, "minor": 11}}}}
    usual = {**python, "artifacts_variant": "cpu", "artifacts_own_locks": str(locks)}
    assert play(tmp_path, "artifacts", "--limit", "m", **usual)[0] == 0
    status, said = play(tmp_path, "artifacts", "--limit", "m", artifacts_newest=True, **usual)
    assert status != 0
    assert (
        "The inventory asks for an environment with the newest libraries (environment_newest), and there is "
        f"no lock {locks}/newest/cpu-py3.11.txt, so nothing was changed: write it with '{MAKE}', or take "
        "environment_newest out of the inventory."
    ) in said
    (locks / "newest").mkdir(parents=True)
    (locks / "newest/cpu-py3.11.txt").touch()
    status, said = play(tmp_path, "artifacts", "--limit", "m", artifacts_newest=True, **usual)
    assert status == 0, said


@pytest.mark.parametrize(
    ("conditions", "place"),
    [({}, "current"), ({"libraries": "locked"}, "current"), ({"libraries": "newest"}, "newest")],
)
def test_runs_that_ask_for_it_are_in_it(conditions: dict[str, Any], place: str) -> None:
    common, spec = "inventory/common", {"conditions": conditions | {"runtime": "native"}}
    environment = value_of("run_environment", f"{common}/cluster.yml", run_spec=spec)
    assert environment == f"/opt/trainbed/env/{place}"
    for stack, variable in (("ddp", "ddp_environment"), ("spark", "spark_run_environment")):
        assert value_of(variable, f"{common}/{stack}.yml", run_environment=environment) == environment
    given = value_of(
        "ddp_native_environment", "roles/ddp/vars/main.yml", run_spec=spec, ddp_environment=environment
    )
    assert given["TRAINBED_ENV_DIGEST"] == f"{environment}/DIGEST"
    assert given["PATH"].startswith(f"{environment}/bin:")
