"""Tests reach nodes by every kind of connection that an inventory may set."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.connections import Inventory, SudoAsks
from tests.stacks import ROOT


def reached(**variables: Any) -> Any:
    """Testinfra's backend for a node with these variables."""
    inventory = Inventory(ROOT, {})
    inventory.groups = {"cluster": {"first": {}, "node": {"ansible_host": "198.18.9.10", **variables}}}
    inventory._file = ROOT / "inventory"
    return inventory.node("node").backend


def test_a_lab_is_reached_by_its_own_user_port_key_and_jump_host_with_one_connection_kept() -> None:
    backend = reached(
        ansible_user="ada",
        ansible_port=2222,
        ansible_ssh_private_key_file="/keys/ada",
        ansible_ssh_common_args="-o ProxyJump=gate.invalid",
    )
    assert backend.NAME == "ssh" and backend.sudo
    assert (backend.host.user, backend.host.name, backend.host.port) == ("ada", "198.18.9.10", "2222")
    assert backend.ssh_identity_file == "/keys/ada"
    for wanted in ("-o ProxyJump=gate.invalid", "-o ControlMaster=auto", "-o ControlPersist=120s"):
        assert wanted in backend.ssh_extra_args
    assert backend.ssh_extra_args.count("-o ControlPath=/tmp/trainbed-") == 1


def test_a_place_for_sockets_that_the_inventory_says_comes_first() -> None:
    own = "-o ControlPath=/run/own"
    assert own in reached(ansible_ssh_common_args=own).ssh_extra_args.split(" -o ControlPath=/tmp/")[0]


@pytest.mark.parametrize(
    ("connection", "backend"),
    [("smart", "ssh"), ("local", "local"), ("community.docker.docker", "docker"), ("a.b.other", "ansible")],
)
def test_other_connections_are_ansibles_own(connection: str, backend: str) -> None:
    found = reached(ansible_connection=connection)
    kind = found.NAME
    assert kind == backend
    # Ansible becomes root by itself.
    assert found.sudo or kind == "ansible"


def test_a_password_for_sudo_never_stands_on_a_command_line() -> None:
    asked = reached(ansible_become_password="s3kret")
    plain = reached(ansible_become_password="")
    assert isinstance(asked, SudoAsks) and not isinstance(plain, SudoAsks)
    command = asked.get_command("cat %s", "/etc/shadow")
    assert "sudo" in command and "s3kret" not in command
    assert asked.run_local("cat").stdout == "s3kret\n"


@pytest.mark.parametrize("user", [None, "postgres"])
def test_such_a_sudo_is_asked_with_the_users_name(user: str | None) -> None:
    asked = reached(ansible_become_password="s3kret")
    asked.sudo_user = user
    assert shlex.split(asked.get_command("id"))[-3:] == ["/bin/sh", "-c", "id"]
    assert ("--user postgres " in asked.get_command("id")) == (user is not None)
