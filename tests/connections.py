"""How tests reach nodes: by the connections that an inventory says, worked out by Ansible and kept open."""

from __future__ import annotations

import atexit
import configparser
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import testinfra
from testinfra.host import Host
from testinfra.utils.ansible_runner import get_ansible_host


class Inventory:
    """An inventory with its templates worked out, and one kept connection to each of its nodes."""

    def __init__(self, root: Path, environment: Mapping[str, str], more: Sequence[str] = ()) -> None:
        """Read the inventory that the verbs in `root` have with this environment, once it is asked for.

        `more` are variables to be read besides those of playbooks/connections.yml.
        """
        self._root = root
        self._environment = dict(environment)
        self._more = list(more)

    @functools.cached_property
    def _folder(self) -> Path:
        """Where sockets of kept connections lie (their paths must be short), and the inventory's secrets."""
        folder = Path(tempfile.mkdtemp(prefix="trainbed-", dir="/tmp"))
        atexit.register(self._close, folder)
        return folder

    @functools.cached_property
    def _file(self) -> Path:
        """The inventory with all its templates worked out."""
        path = self._folder / "inventory.json"
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "ansible-playbook"),
                str(self._root / "playbooks" / "connections.yml"),
                "-e",
                json.dumps({"connections_dest": str(path), "connections_more": self._more}),
            ],
            cwd=self._root,
            env={**self._environment, "ANSIBLE_CONFIG": str(self._root / "ansible.cfg")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the inventory cannot be read:\n{done.stdout}{done.stderr}")
        return path

    @functools.cached_property
    def groups(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Groups: for each its hosts, for each of those its variables."""
        children = json.loads(self._file.read_text(encoding="utf-8"))["all"]["children"]
        return {group: content["hosts"] for group, content in children.items()}

    @functools.cached_property
    def _hosts(self) -> dict[str, Host]:
        """Testinfra's view of every node, by Ansible's own connection settings."""
        variables = {
            name: {**facts, "ansible_ssh_common_args": self._kept(name, facts)}
            for name, facts in self.groups["cluster"].items()
        }
        static = {"all": {"hosts": list(variables)}, "_meta": {"hostvars": variables}}
        config = configparser.ConfigParser()
        config.read(self._root / "ansible.cfg")
        # What testinfra has no connection of its own for goes through Ansible, command by command.
        return {
            name: get_ansible_host(config, static, name)
            or testinfra.get_host(f"ansible://{name}", ansible_inventory=str(self._file))
            for name in variables
        }

    def _kept(self, name: str, facts: dict[str, Any]) -> str:
        """SSH's arguments for a node, with a socket by which its commands share one connection.

        It is kept for as long as ansible.cfg says. SSH takes the first of two values, so an inventory with a
        place of its own for sockets keeps it.
        """
        given = str(facts.get("ansible_ssh_common_args", ""))
        return f"{given} -o ControlPath={self._socket(name)}".strip()

    def _socket(self, name: str) -> Path:
        return self._folder / str(list(self.groups["cluster"]).index(name))

    def node(self, name: str) -> Host:
        """Testinfra's view of one node."""
        return self._hosts[name]

    def hang_up(self, name: str) -> None:
        """Close the kept connection to a node, which is about to go away or to change."""
        _hang_up(self._socket(name))

    @staticmethod
    def _close(folder: Path) -> None:
        for path in folder.iterdir():
            if path.is_socket():
                _hang_up(path)
        shutil.rmtree(folder)


def _hang_up(socket: Path) -> None:
    if socket.exists():
        # Its other end may have gone meanwhile, which is as well. SSH wants a name; the socket decides.
        subprocess.run(["ssh", "-S", str(socket), "-O", "exit", "kept"], capture_output=True, check=False)
