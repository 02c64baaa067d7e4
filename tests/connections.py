"""How tests reach nodes: over the inventory's connections, resolved by Ansible and kept open."""

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
from testinfra.backend.base import CommandResult
from testinfra.backend.ssh import SshBackend
from testinfra.host import Host
from testinfra.utils.ansible_runner import get_ansible_host


class SudoAsks(SshBackend):  # type: ignore[misc]  # testinfra has no types
    """SSH to a node whose sudo asks for a password: it is written to sudo's standard input."""

    NAME = "ssh"

    def __init__(self, plain: SshBackend, password: str) -> None:
        """`plain` is the same without the password."""
        self.__dict__.update(plain.__dict__)
        self._password = password

    def get_sudo_command(self, command: str, sudo_user: str | None) -> str:
        """The command with sudo, which asks each time, so that the password never reaches the command."""
        user = self.quote("--user %s", sudo_user) if sudo_user else ""
        return str(self.quote(f"sudo --reset-timestamp --stdin --prompt= {user} /bin/sh -c %s", command))

    def run_local(self, command: str, *args: str) -> CommandResult:
        """Run ssh."""
        quoted = self.encode(self.quote(command, *args))
        given = f"{self._password}\n".encode()
        done = subprocess.run(quoted, shell=True, input=given, capture_output=True, check=False)
        return self.result(done.returncode, quoted, done.stdout, done.stderr)


class Inventory:
    """An inventory with its templates resolved, and one persistent connection to each of its nodes."""

    def __init__(self, root: Path, environment: Mapping[str, str], more: Sequence[str] = ()) -> None:
        """Read, on first use, the inventory that the verbs in `root` have with this environment.

        `more` names variables to read besides those of playbooks/connections.yml.
        """
        self._root = root
        self._environment = dict(environment)
        self._more = list(more)

    @functools.cached_property
    def _folder(self) -> Path:
        """Holds the connections' sockets, whose paths must be short, and the inventory with its secrets."""
        folder = Path(tempfile.mkdtemp(prefix="trainbed-", dir="/tmp"))
        atexit.register(self._close, folder)
        return folder

    @functools.cached_property
    def _file(self) -> Path:
        """The inventory with all its templates resolved."""
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
        """Variables by group and host."""
        children = json.loads(self._file.read_text(encoding="utf-8"))["all"]["children"]
        return {group: content["hosts"] for group, content in children.items()}

    @functools.cached_property
    def _hosts(self) -> dict[str, Host]:
        """Testinfra's view of every node, with Ansible's connection settings."""
        variables = {
            name: {**facts, "ansible_ssh_common_args": self._kept(name, facts)}
            for name, facts in self.groups["cluster"].items()
        }
        static = {"all": {"hosts": list(variables)}, "_meta": {"hostvars": variables}}
        config = configparser.ConfigParser()
        config.read(self._root / "ansible.cfg")
        found = {}
        for name, facts in variables.items():
            # What testinfra can't do, other connection types, goes through Ansible, command by command.
            host = get_ansible_host(config, static, name) or testinfra.get_host(
                f"ansible://{name}", ansible_inventory=str(self._file)
            )
            password = facts.get("ansible_become_password")
            if password and isinstance(host.backend, SshBackend):
                host = Host(SudoAsks(host.backend, str(password)))
            found[name] = host
        return found

    def _kept(self, name: str, facts: dict[str, Any]) -> str:
        """SSH's arguments for a node, with a socket through which its commands share one connection.

        The connection is kept for as long as ansible.cfg says. SSH takes the first of two values, so a
        ControlPath of the inventory's own wins.
        """
        given = str(facts.get("ansible_ssh_common_args", ""))
        return f"{given} -o ControlPath={self._socket(name)}".strip()

    def _socket(self, name: str) -> Path:
        return self._folder / str(list(self.groups["cluster"]).index(name))

    def node(self, name: str) -> Host:
        """Testinfra's view of one node."""
        return self._hosts[name]

    def hang_up(self, name: str) -> None:
        """Close the connection to a node that is about to go away or change."""
        _hang_up(self._socket(name))

    @staticmethod
    def _close(folder: Path) -> None:
        for path in folder.iterdir():
            if path.is_socket():
                _hang_up(path)
        shutil.rmtree(folder)


def _hang_up(socket: Path) -> None:
    if socket.exists():
        # The other end may already be gone, which is fine. SSH requires a name, but only the socket counts.
        subprocess.run(["ssh", "-S", str(socket), "-O", "exit", "kept"], capture_output=True, check=False)
