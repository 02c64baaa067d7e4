"""What other people left on a node: names on the loopback, an active ufw, a daemon.json."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.roles.loading import load, value_of

NAMES = {"master": "192.0.2.10", "worker1": "192.0.2.11"}
BLOCK = (
    "# BEGIN nodes of the cluster (trainbed)\n192.0.2.10 master\n192.0.2.11 worker1\n"
    "# END nodes of the cluster (trainbed)\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", BLOCK),
        (
            "127.0.0.1\tlocalhost\n127.0.1.1\tdebian\n\n::1 localhost",
            f"{BLOCK}127.0.0.1\tlocalhost\n\n::1 localhost",
        ),
        (f"{BLOCK}10.0.0.1 printer\n", f"{BLOCK}10.0.0.1 printer\n"),
        (f"a\n{BLOCK.replace('192.0.2.11', '192.0.2.99')}b\n", f"a\n{BLOCK}b\n"),
        # The first line with a name counts, wherever it leads.
        ("192.168.1.11 worker1\n", f"{BLOCK}192.168.1.11 worker1\n"),
        (
            "127.0.0.1 localhost worker1.lab worker1 # installer\n::1 worker1\n127.0.0.1 local # worker1\n",
            f"{BLOCK}127.0.0.1\tlocalhost # installer\n127.0.0.1 local # worker1\n",
        ),
        # cloud-init's template keeps what it fills in.
        (
            "## template:jinja\n127.0.1.1 {{fqdn}} {{hostname}}\n127.0.0.1 localhost\n",
            f"## template:jinja\n{BLOCK}127.0.0.1 localhost\n",
        ),
    ],
)
def test_hosts_files_get_the_nodes_and_lose_the_loopback(before: str, after: str) -> None:
    module = load("roles/base/library/host_names.py")
    assert module.with_names(before, NAMES) == after
    assert module.with_names(after, NAMES) == after


def test_ufw_gets_missing_rules_and_loses_those_of_nodes_that_left() -> None:
    module = load("roles/base/library/ufw_peers.py")
    added = (
        "Added user rules (see 'ufw status' for running firewall):\nufw allow 22/tcp\n"
        "ufw allow from 192.0.2.11 comment 'trainbed'\nufw allow from 192.0.2.99 comment 'trainbed'\n"
        "ufw allow from 192.0.2.77 comment 'backup'\n"
    )
    assert module.changes(added, ["from 192.0.2.11", "from 192.0.2.12", "in on docker0"]) == [
        ["allow", "from", "192.0.2.12", "comment", "trainbed"],
        ["allow", "in", "on", "docker0", "comment", "trainbed"],
        ["delete", "allow", "from", "192.0.2.99"],
    ]
    then = "ufw allow in on docker0 comment 'trainbed'\n"
    assert module.changes(then, ["in on docker0"]) == []
    assert module.changes(then, []) == [["delete", "allow", "in", "on", "docker0"]]
    assert module.changes("Added user rules: (None)\n", []) == []


def engine(found: dict[str, Any]) -> dict[str, Any]:
    """The configuration that the role writes where it found this one."""
    registries = ["192.0.2.10:5000"]
    return dict(
        value_of(
            "docker_configuration",
            "roles/docker/vars/main.yml",
            docker_found=found,
            docker_runtimes={},
            docker_insecure_registries=registries,
        )
    )


def test_a_fresh_engine_gets_a_configuration() -> None:
    assert engine({}) == {
        "exec-opts": ["native.cgroupdriver=systemd"],
        "insecure-registries": ["192.0.2.10:5000"],
        "log-driver": "json-file",
        "log-opts": {"max-size": "50m", "max-file": "2"},
    }


@pytest.mark.parametrize(
    "found",
    [
        {"log-driver": "journald", "data-root": "/data/docker", "dns": ["192.0.2.1"]},
        {"log-opts": {"max-size": "7m"}, "max-concurrent-downloads": 2, "debug": False},
        {"exec-opts": ["native.cgroupdriver=cgroupfs", "isolation=x"], "insecure-registries": ["old:1"]},
    ],
)
def test_somebody_elses_settings_stay_except_for_the_cgroup_driver(found: dict[str, Any]) -> None:
    merged = engine(found)
    assert merged == engine(merged), "a second run would change it"
    for name, value in found.items():
        if name not in ("exec-opts", "insecure-registries"):
            assert merged[name] == value
    assert merged["exec-opts"] == ["native.cgroupdriver=systemd", *found.get("exec-opts", [])[1:]]
    assert merged["insecure-registries"] == ["192.0.2.10:5000", *found.get("insecure-registries", [])]
    # Options of one driver may mean nothing to another.
    assert ("log-driver" in merged) == ("log-driver" in found or "log-opts" not in found)
    json.dumps(merged)
