"""Store, engine, registry, storage and network."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
from testinfra.host import Host

from tests.nodes import cluster
from tests.nodes.facts import cores_named, link, listening, ports, unit, usable_cores
from tests.stacks import declared


@pytest.mark.on("master")
@pytest.mark.parametrize("service", ["nginx", "squid", "docker", "docker-registry"])
def test_the_masters_services_run_and_come_back(name: str, service: str) -> None:
    assert unit(name, service).is_running
    assert unit(name, service).is_enabled


@pytest.mark.on("workers")
def test_a_workers_engine_runs_and_comes_back(name: str) -> None:
    assert unit(name, "docker").is_running
    assert unit(name, "docker").is_enabled


@pytest.mark.on("master")
@pytest.mark.parametrize(
    ("moved", "usual"), [("registry_port", 5000), ("artifacts_apt_port", 3142), ("artifacts_port", 8070)]
)
def test_the_master_listens_on_one_address_only(name: str, moved: str, usual: int) -> None:
    assert listening(name, cluster.port(moved, usual)) == [cluster.variables(name)["cluster_address"]]


@pytest.mark.usefixtures("testbed")
def test_leaves_the_ports_of_others_alone(node: Host, name: str) -> None:
    absent = set(declared()) - set(cluster.stacks())
    left = {
        number
        for stack in absent
        for other in cluster.groups()["cluster"]
        for number, port in ports(other, stack).items()
        if port.kept_with is None or not node.file(port.kept_with).exists
    }
    if not left:
        pytest.skip("every stack that has ports is installed")
    assert {port: listening(name, port) for port in left} == {port: [] for port in left}


def test_the_journal_reads_its_limit(node: Host) -> None:
    read = node.check_output("systemd-analyze cat-config systemd/journald.conf")
    (_, ours) = read.split("# /etc/systemd/journald.conf.d/trainbed.conf\n")
    assert re.match(r"\[Journal\]\n(SystemMaxUse=[1-9]\d*M|# as the node has it)$", ours, re.MULTILINE)


def test_containers_stay_within_the_nodes_cgroup(node: Host) -> None:
    assert node.check_output("docker info --format '{{.CgroupDriver}}'") == "systemd"


@pytest.mark.on("workers")
def test_ranks_take_the_interface_with_the_clusters_address(name: str, told: Callable[[str], None]) -> None:
    facts, way = cluster.variables(name), link(name)
    told(f"Ranks on {name} take {way}.")
    assert way.address == facts["cluster_address"]
    # Who names interfaces means the same ones on every worker.
    named = str(facts.get("rank_environment", {}).get("GLOO_SOCKET_IFNAME", way.interface)).split(",")
    there = cluster.node(name).check_output("ls /sys/class/net").split()
    assert set(named) <= set(there)


@pytest.mark.on("workers")
@pytest.mark.usefixtures("testbed")
def test_a_testbeds_worker_is_pinned_to_the_cores_that_its_inventory_says(name: str) -> None:
    cpus = cluster.variables(name).get("testbed_cpus")
    if cpus is None:
        pytest.skip("this testbed's nodes are virtual machines, whose cores are their own")
    assert usable_cores(name) == cores_named(str(cpus))


def test_shared_storage_is_one_directory(node: Host, name: str) -> None:
    facts = cluster.variables(name)
    mark = f"{name}-{os.getpid()}"
    path = f"{facts['shared_storage_path']}/runs/.verify-{mark}"
    user = facts["trainbed_user"]
    node.check_output("runuser -u %s -- sh -c %s", user, f"echo {mark} > {path}")
    try:
        for other in cluster.groups()["cluster"]:
            assert cluster.node(other).check_output("runuser -u %s -- cat %s", user, path) == mark
    finally:
        # Not as root, which may change nothing on NFS.
        node.check_output("runuser -u %s -- rm %s", user, path)


def shared_mount(name: str) -> tuple[str, set[str]]:
    """Type of the shared storage's file system on a node, and its mount's options."""
    command = "findmnt --noheadings --first-only --output FSTYPE,OPTIONS --target %s"
    kind, options = (
        cluster.node(name).check_output(command, cluster.variables(name)["shared_storage_path"]).split()
    )
    return kind, set(options.split(","))


def test_shared_storage_makes_nobody_root(name: str) -> None:
    assert {"nosuid", "nodev"} <= shared_mount(name)[1]


@pytest.mark.on("master")
def test_what_is_exported_makes_nobody_root_by_another_path(node: Host) -> None:
    exports = node.file("/etc/exports.d/trainbed.exports")
    if not exports.exists:
        pytest.skip("this master exports nothing")
    directory = exports.content_string.split()[0]
    options = node.check_output("findmnt --noheadings --output OPTIONS --mountpoint %s", directory)
    assert {"nosuid", "nodev"} <= set(options.split(","))


@pytest.mark.on("workers")
def test_a_workers_root_is_nobody_on_shared_storage(node: Host, name: str) -> None:
    if name == cluster.master():
        pytest.skip("this worker is the master too, where root may write")
    if not shared_mount(name)[0].startswith("nfs"):
        pytest.skip("the shared storage is not NFS: here root is root")
    shared, user = (cluster.variables(name)[key] for key in ("shared_storage_path", "trainbed_user"))
    mark = f".verify-root-{name}-{os.getpid()}"
    tried = node.run("touch %s %s", f"{shared}/{mark}", f"{shared}/runs/{mark}")
    found = node.check_output("find %s %s -maxdepth 1 -name %s", shared, f"{shared}/runs", mark)
    assert (tried.rc, found) == (1, ""), f"root on {name} wrote to {shared}, which {user} shares"


def test_training_cannot_lead_root_elsewhere_by_a_link(node: Host, name: str) -> None:
    shared, user = (cluster.variables(name)[key] for key in ("shared_storage_path", "trainbed_user"))
    places = [shared, f"{shared}/code", "/var/lib/trainbed"]
    writable = "runuser -u %s -- find %s %s %s -maxdepth 0 -writable"
    assert node.check_output(writable, user, *places) == ""


@cluster.question("workers")
def ways_out(name: str) -> tuple[int, int]:
    """Exit codes of fetching from a worker's package mirror, through the master's proxy and without it."""
    node = cluster.node(name)
    mirror = node.check_output("apt-get indextargets --format '$(REPO_URI)' | head -n 1")
    proxy = node.check_output("apt-config shell p Acquire::http::Proxy").removeprefix("p=").strip("'")
    command = f"curl --silent --output /dev/null --max-time 10 --proxy '%s' {mirror}"
    return node.run(command, proxy).rc, node.run(command, "").rc


@pytest.mark.on("workers")
@cluster.asks(ways_out)
@pytest.mark.usefixtures("testbed")
def test_a_workers_only_way_out_is_the_master(name: str) -> None:
    if name == cluster.master():
        pytest.skip("this worker is the master too")
    by_the_master, alone = ways_out(name)
    assert by_the_master == 0
    assert alone != 0
