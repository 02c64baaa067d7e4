"""Nodes that joined, left, moved or were renamed since the master noted its members, and what is retired."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from tests.unit.roles.loading import ROOT, call, load
from tests.unit.roles.test_preflight_decisions import decisions, needs

node_retire = load("roles/node/library/node_retire.py")
node = load("roles/node/filter_plugins/node.py")


def member(number: int, *groups: str, identity: str | None = None) -> dict[str, Any]:
    return {
        "address": f"10.0.0.{number}",
        "host": f"10.0.0.{number}",
        "port": 2200 + number,
        "user": "lab",
        "ssh_args": "-J gate",
        "key": "/keys/lab",
        "cores": 4,
        "machine_id": f"id{number}" if identity is None else identity,
        "groups": list(groups or ["workers"]),
    }


NOTED = {"m": member(1, "master"), "w1": member(2), "w2": member(3)}
STAYS = {
    "name": "w1",
    "groups": ["workers"],
    "keeps": ["master"],
    "host": "",
    "port": 0,
    "user": "",
    "ssh_args": "",
    "key": "",
    "machine_id": "",
}
LEFT = {
    "name": "w2",
    "groups": ["workers"],
    "keeps": [],
    "host": "10.0.0.3",
    "port": 2203,
    "user": "lab",
    "ssh_args": "-J gate",
    "key": "/keys/lab",
    "machine_id": "id3",
}


@pytest.mark.parametrize(
    ("members", "left", "said"),
    [
        (NOTED, [], []),
        (NOTED | {"w3": member(4)}, [], []),  # one more
        ({"m": NOTED["m"], "w1": NOTED["w1"]}, [LEFT], ["w2 is no longer in the inventory of "]),
        # Another name, another address, or both, of the same machine.
        ({"m": NOTED["m"], "w1": NOTED["w1"], "n2": NOTED["w2"]}, [], ["w2 is now called n2."]),
        (NOTED | {"w2": member(9, identity="id3")}, [], ["w2 has moved from 10.0.0.3 to 10.0.0.9."]),
        (
            {"m": NOTED["m"], "w1": NOTED["w1"], "n2": member(9, identity="id3")},
            [],
            ["w2 is now called n2.", "n2 has moved from 10.0.0.3 to 10.0.0.9."],
        ),
        # Another machine under the old name: the old one is retired where it was.
        (NOTED | {"w2": member(9)}, [LEFT], ["w2 is no longer in the inventory of "]),
        # Installed anew, at its old address.
        (NOTED | {"w2": member(3, identity="other")}, [], []),
        # Not known by its machine-id.
        (NOTED | {"w2": member(9, identity="")}, [], ["w2 has moved from 10.0.0.3 to 10.0.0.9."]),
        # A master that becomes a worker, too, and one that no longer is.
        (NOTED | {"m": member(1, "master", "workers")}, [], []),
        (
            {"m": member(1, "master"), "w1": member(2, "master")},
            [LEFT, STAYS],
            ["w1 is no longer in workers of ", "w2 is no longer in the inventory of "],
        ),
    ],
)  # fmt: skip
def test_what_the_inventory_no_longer_says(
    members: dict[str, Any], left: list[dict[str, Any]], said: list[str]
) -> None:
    found = decisions.preflight_left(NOTED, members)
    assert sorted(found, key=str) == sorted(left, key=str)
    sentences = decisions.preflight_changes(NOTED, members, False)
    assert len(sentences) == len(said)
    assert all(any(each.startswith(start) for each in sentences) for start in said), sentences


@pytest.mark.parametrize(
    ("noted", "used"),
    [
        ("-J gate", "-J gate"),
        ("-o ProxyJump=ada@gate.lab:2022", "-o ProxyJump=ada@gate.lab:2022"),
        ("-o ProxyCommand='nc gate 22'", "-o ProxyCommand='nc gate 22'"),  # a member's of today, too
        ("-o ProxyCommand='touch /tmp/seen'", ""),
        ("-J gate -o ProxyCommand=reboot", ""),
        ("-J -oProxyCommand=reboot", ""),
    ],
)
def test_a_note_on_the_master_starts_no_program_here(noted: str, used: str) -> None:
    of_today = {"m": NOTED["m"] | {"ssh_args": "-o ProxyCommand='nc gate 22'"}}
    before = {"m": NOTED["m"], "w2": NOTED["w2"] | {"ssh_args": noted}}
    (left,) = decisions.preflight_left(before, of_today)
    assert left["ssh_args"] == used


@pytest.mark.parametrize(
    "changed", [{"host": "-oProxyCommand=reboot"}, {"host": "a b"}, {"user": "-F/tmp/it"}]
)
def test_a_note_that_names_no_host_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(AnsibleFilterError, match=r"cluster.json says that w2, .* and that is none: correct"):
        decisions.preflight_left({"w2": NOTED["w2"] | changed}, {"m": NOTED["m"]})


def test_a_part_of_a_provisioning_says_that_it_retires_nothing() -> None:
    (said,) = decisions.preflight_changes(NOTED, {"m": NOTED["m"], "w1": NOTED["w1"]}, True)
    assert said.endswith("the next whole provisioning retires it.")


def test_what_is_noted_recognises_and_reaches_a_member() -> None:
    variables = {
        "cluster_address": "10.1.0.2",
        "ansible_host": "w1.lab",
        "preflight_way": {"port": "2022", "ssh_args": "-J gate", "key": "/keys/lab"},
        "ansible_facts": {"machine_id": "abc", "processor_nproc": 8},
        "group_names": ["cluster", "rack1", "workers"],
        "ansible_password": "secret",
    }
    bare = {"cluster_address": "w2", "group_names": ["cluster", "master", "workers"]}
    assert decisions.preflight_members(["w1", "w2"], {"w1": variables, "w2": bare}) == {
        "w1": {
            "address": "10.1.0.2",
            "host": "w1.lab",
            "port": 2022,
            "user": "",
            "ssh_args": "-J gate",
            "key": "/keys/lab",
            "cores": 8,
            "machine_id": "abc",
            "groups": ["workers"],
        },
        "w2": {
            "address": "w2",
            "host": "w2",
            "port": 0,
            "user": "",
            "ssh_args": "",
            "key": "",
            "cores": 0,
            "machine_id": "",
            "groups": ["master", "workers"],
        },
    }


def test_what_is_retired_is_what_stacks_declare() -> None:
    services = {kind: set(needs(kind)["services"]) for kind in ("master", "worker", "both")}
    assert services["worker"] == {"spark-worker", "determined-agent"}
    assert services["both"] == services["worker"] | services["master"] and "postgresql" in services["master"]
    assert needs("worker", "ddp")["services"] == []


SYSTEMCTL = """#!/bin/sh
if [ "$1" = show ]; then
    case $2 in
        running) printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n' ;;
        restarting) printf 'LoadState=loaded\\nActiveState=activating\\nUnitFileState=disabled\\n' ;;
        at-boot) printf 'LoadState=loaded\\nActiveState=failed\\nUnitFileState=enabled\\n' ;;
        retired) printf 'LoadState=loaded\\nActiveState=inactive\\nUnitFileState=disabled\\n' ;;
        *) printf 'LoadState=not-found\\nActiveState=inactive\\nUnitFileState=\\n' ;;
    esac
else
    echo "$@" >> "$(dirname "$0")/called"
fi
"""


@pytest.mark.parametrize("check", [False, True])
def test_only_units_that_run_or_would_start_are_stopped(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    (tmp_path / "systemctl").write_text(SYSTEMCTL)
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    units = ["running", "restarting", "at-boot", "retired", "never-there"]
    (tmp_path / "machine-id").write_text("abc\n")
    monkeypatch.setattr(node_retire, "MACHINE_IDS", (tmp_path / "none", tmp_path / "machine-id"))
    other = call(node_retire, check=check, units=units, machine_id="def")
    assert (other["failed"], other["msg"]) == (True, "another machine has its address now")
    done = call(node_retire, check=check, units=units, machine_id="abc")
    assert (done["changed"], done["done"]) == (True, ["running", "restarting", "at-boot"])
    called = tmp_path / "called"
    assert called.exists() != check
    wanted = [f"{verb} {unit}" for unit in done["done"] for verb in ("disable --now", "reset-failed")]
    assert check or called.read_text().splitlines() == wanted
    assert not call(node_retire, check=check, units=["retired", "never-there"])["changed"]


def test_check_mode_names_what_a_stack_declares_for_the_nodes_groups() -> None:
    declared = {
        "master": {"packages": {"Debian-12": ["a"], "Debian-13": ["b"]}, "services": ["top"]},
        "workers": {
            "packages": ["c", "a"],
            "files": ["/etc/one", {"Debian-12": "/etc/two"}, {"Debian-13": "/etc/three"}],
            "services": ["bottom"],
        },
    }
    assert node.node_would_have(declared, ["cluster", "workers"], "Debian-12") == {
        "packages": ["a", "c"],
        "files": ["/etc/one", "/etc/two"],
        "services": ["bottom"],
    }
    both = node.node_would_have(declared, ["cluster", "master", "workers"], "Debian-13")
    assert (both["packages"], both["services"]) == (["a", "b", "c"], ["bottom", "top"])
    assert node.node_would_have(None, ["cluster"], "Debian-12") == {
        "packages": [],
        "files": [],
        "services": [],
    }


def test_each_role_of_the_playbook_has_a_tag_of_its_name() -> None:
    plays = yaml.safe_load((ROOT / "playbooks/provision.yml").read_text(encoding="utf-8"))
    roles = [role for play in plays for role in play.get("roles", []) if role["role"] != "cluster_lock"]
    assert roles and all(role["tags"] == [role["role"]] for role in roles)
    known = yaml.safe_load((ROOT / "roles/preflight/vars/main.yml").read_text(encoding="utf-8"))
    assert sorted(known["preflight_tags_roles"]) == sorted(role["role"] for role in roles)
