"""Store, engine, registry, storage and network."""

from __future__ import annotations

import os
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
def test_leaves_the_ports_of_others_alone(name: str) -> None:
    absent = set(declared()) - set(cluster.stacks())
    left = {port for stack in absent for other in cluster.groups()["cluster"] for port in ports(other, stack)}
    if not left:
        pytest.skip("every stack that has ports is installed")
    assert {port: listening(name, port) for port in left} == {port: [] for port in left}


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
    assert usable_cores(name) == cores_named(str(cluster.variables(name)["testbed_cpus"]))


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
        node.check_output("rm %s", path)


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
