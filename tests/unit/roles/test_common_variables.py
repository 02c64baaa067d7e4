"""Common variables reach every inventory, wherever it is; what an inventory sets itself comes first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.connections import Inventory

ROOT = Path(__file__).resolve().parents[3]
LAB = ROOT / "inventory" / "lab"


def _ask(folder: Path | None, inventory: Path = ROOT / "inventory" / "testbed") -> Any:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    environment.pop("TRAINBED_STACKS", None)
    if folder is not None:
        environment["TRAINBED_STACKS"] = str(folder)
    program = Path(sys.executable).parent / "ansible-inventory"
    return subprocess.run(
        [program, "--inventory", os.path.relpath(inventory, ROOT), "--host", "worker1"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _variables(folder: Path | None, inventory: Path = ROOT / "inventory" / "testbed") -> dict[str, Any]:
    done = _ask(folder, inventory)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A lab's inventory outside the checkout."""
    return Path(shutil.copytree(LAB, tmp_path / "site" / "lab"))


def test_an_inventory_outside_the_checkout_has_them_all(site: Path) -> None:
    found = _variables(None, site)

    assert found == _variables(None, LAB)
    assert found["trainbed_uid"] == 6100 and found["nvidia_reboot"] is True
    assert "ddp_master_port" in found  # of a stack's own file


@pytest.mark.parametrize("target", ["../../../common", str(ROOT / "inventory" / "common")])
def test_a_site_that_still_links_them_keeps_working(site: Path, target: str) -> None:
    (site / "group_vars" / "all" / "00-common").symlink_to(target)

    assert _variables(None, site) == _variables(None, LAB)


def test_whatever_an_inventory_sets_itself_comes_before_them(site: Path) -> None:
    lines = (site / "hosts.yml").read_text().splitlines()
    at = lines.index("all:") + 1
    inline = "  vars: {worker_threads: 2, trainbed_uid: 7000, data_root: /inline}"
    (site / "hosts.yml").write_text("\n".join([*lines[:at], inline, *lines[at:]]))
    (site / "group_vars" / "all" / "more.yml").write_text("trainbed_uid: 7001\nquiet_wait_s: 1\n")
    (site / "group_vars" / "workers.yml").write_text("quiet_wait_s: 2\n")
    (site / "host_vars").mkdir()
    (site / "host_vars" / "worker1.yml").write_text("registry_address: 192.0.2.1\n")

    found = _variables(None, site)

    assert (found["worker_threads"], found["data_root"]) == (2, "/inline")
    assert (found["trainbed_uid"], found["quiet_wait_s"]) == (7001, 2)
    assert found["registry_address"] == "192.0.2.1"
    assert found["quiet_busy_cores"] == 0.5


def test_playbooks_and_tests_of_nodes_see_them(site: Path) -> None:
    environment = {**os.environ, "ANSIBLE_INVENTORY": os.path.relpath(site, ROOT)}

    nodes = Inventory(ROOT, environment).groups["cluster"]

    assert nodes["worker1"]["cluster_address"] == "192.168.217.245"
    assert nodes["worker1"]["trainbed_user"] == "trainbed"


def test_those_of_stacks_outside_the_checkout_are_there_too(tmp_path: Path) -> None:
    common = tmp_path / "inventory" / "common"
    common.mkdir(parents=True)
    (common / "mine.yml").write_text("mine_port: 7000\nworker_threads: 64\n")

    found, without = _variables(tmp_path), _variables(None)

    assert found["mine_port"] == 7000 and "mine_port" not in without
    assert found["worker_threads"] == without["worker_threads"] != 64


def test_a_folder_that_is_not_there_stops_every_playbook(tmp_path: Path) -> None:
    done = _ask(tmp_path / "nothing")

    assert done.returncode != 0
    assert "there is no such folder" in done.stderr
