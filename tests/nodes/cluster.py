"""The cluster under test, as its inventory says it is."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import testinfra
from testinfra.host import Host

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def inventory_file() -> Path:
    """Write the inventory that is set with all its templates worked out, and return its path."""
    folder = tempfile.mkdtemp(prefix="trainbed-")
    atexit.register(shutil.rmtree, folder)
    path = Path(folder) / "inventory.json"
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            str(ROOT / "playbooks" / "connections.yml"),
            "-e",
            f"connections_dest={path}",
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the inventory cannot be read:\n{done.stdout}{done.stderr}")
    return path


@functools.cache
def groups() -> dict[str, dict[str, dict[str, Any]]]:
    """Groups of the inventory: for each its hosts, for each of those its variables."""
    children = json.loads(inventory_file().read_text(encoding="utf-8"))["all"]["children"]
    return {group: content["hosts"] for group, content in children.items()}


def variables(name: str) -> dict[str, Any]:
    """Variables of one node."""
    return groups()["cluster"][name]


@functools.cache
def stacks() -> list[str]:
    """Stacks that are installed."""
    noted = json.loads(node(master()).check_output("cat /etc/trainbed/stacks.json"))
    return list(noted["stacks"])


def port(name: str, usual: int) -> int:
    """A port that the inventory may have moved from the usual one."""
    return int(variables(master()).get(name, usual))


def is_testbed() -> bool:
    """Whether the inventory is a testbed's."""
    return "testbed_name" in variables(master())


def master() -> str:
    """Name of the master."""
    return next(iter(groups()["master"]))


@functools.cache
def node(name: str) -> Host:
    """Return testinfra's view of one node, by Ansible's own connection settings."""
    return testinfra.get_host(f"ansible://{name}", ansible_inventory=str(inventory_file()))
