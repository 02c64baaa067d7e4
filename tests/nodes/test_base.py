"""Names, users, SSH between nodes, units, timers and package proxy of every node."""

from __future__ import annotations

import pytest
from testinfra.backend.base import CommandResult
from testinfra.host import Host

from tests.nodes import cluster


def test_knows_every_node_by_its_address_on_the_cluster(node: Host) -> None:
    for other, facts in cluster.groups()["cluster"].items():
        resolved = node.check_output("getent ahostsv4 %s", other).split()[0]
        assert resolved == facts["cluster_address"]


def test_own_name_is_the_inventorys_and_never_a_loopback_address(node: Host, name: str) -> None:
    assert node.check_output("hostname") == name
    own = node.check_output('python3 -c "import socket; print(socket.gethostbyname(socket.gethostname()))"')
    assert own == cluster.variables(name)["cluster_address"]


def test_training_user_has_the_same_number_everywhere(node: Host, name: str) -> None:
    facts = cluster.variables(name)
    user = node.user(facts["trainbed_user"])
    assert (user.uid, user.gid) == (facts["trainbed_uid"], facts["trainbed_uid"])


@cluster.question("cluster")
def reached(name: str) -> dict[str, CommandResult]:
    """Each node's answer when the training user logs in to it from this one."""
    user = cluster.variables(name)["trainbed_user"]
    command = "runuser -u %s -- ssh -o BatchMode=yes -o StrictHostKeyChecking=yes %s hostname"
    node = cluster.node(name)
    return {other: node.run(command, user, other) for other in cluster.groups()["cluster"]}


@cluster.asks(reached)
def test_training_user_goes_from_node_to_node(name: str) -> None:
    for other, said in reached(name).items():
        assert said.rc == 0, said
        assert said.stdout.strip() == other


def test_runs_with_no_failed_unit(node: Host) -> None:
    assert node.check_output("systemctl is-system-running") == "running"


def test_timers_of_the_distribution_run_while_nobody_measures(node: Host) -> None:
    # They are the node's security updates. Those that the node's administrator switched off stay off, and
    # some are not for every machine: a container, for example, has no disks to trim.
    # Not with list-unit-files, which reads all units and takes too long on a slow machine.
    names = node.check_output("cd /usr/lib/systemd/system && ls -d *.timer").split()
    states = node.run(f"systemctl is-enabled {' '.join(names)}").stdout.split()
    timers = [name for name, state in zip(names, states, strict=True) if state == "enabled"]
    assert timers
    inactive = [timer for timer in timers if node.run("systemctl is-active %s", timer).rc != 0]
    assert [
        timer for timer in inactive if node.run("systemd-analyze condition --unit=%s", timer).rc == 0
    ] == []
    assert not node.service("trainbed-timers-resume.timer").is_running


def test_clock_agrees_with_the_masters(node: Host, name: str) -> None:
    if not node.file("/etc/chrony/conf.d/trainbed.conf").exists:
        pytest.skip("this node has no clock of its own to set, or the lab keeps it")
    if name == cluster.master():
        assert "Leap status     : Normal" in node.check_output("chronyc -n tracking")
    else:
        # Try once: within this many seconds of the master's.
        assert node.run("chronyc waitsync 1 0.05").rc == 0, node.check_output("chronyc -n tracking")


def test_packages_come_through_the_master(node: Host) -> None:
    proxy = node.check_output("apt-config dump Acquire::http::Proxy")
    address = cluster.variables(cluster.master())["cluster_address"]
    assert f"http://{address}:" in proxy


def test_the_lock_is_free(name: str, node: Host) -> None:
    if name == cluster.master():
        assert not node.file("/var/lib/trainbed/lock").exists
