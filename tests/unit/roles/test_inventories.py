"""The testbed's other inventories: which nodes train, and on which cores."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.unit.roles.loading import ROOT
from tests.unit.roles.test_preflight import BINARIES

CORES = [str(core) for core in sorted(os.sched_getaffinity(0))]
ASKED = ("group_names", "ansible_host", "testbed_cpus", "worker_threads", "worker_pinning")


def nodes_of(name: str) -> dict[str, dict[str, Any]]:
    """What an inventory of the repository says of each node; a variable that a node lacks is none."""
    asked = ", ".join(f"'{each}': {each} | default(none)" for each in ASKED)
    done = subprocess.run(
        [
            *(str(BINARIES / "ansible"), "cluster", "-i", str(ROOT / "inventory" / name), "-o"),
            *("-m", "ansible.builtin.debug", "-a", f"msg={{{{ {{ {asked} }} }}}}"),
        ],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "TESTBED_PREFIX": "198.18.99"},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (line.split(" | SUCCESS => ") for line in done.stdout.splitlines() if " | SUCCESS => " in line)
    return {node: json.loads(said)["msg"] for node, said in lines}


@pytest.mark.parametrize("name", ["testbed", "one-worker", "master-works"])
def test_a_testbed_has_a_master_and_workers_with_cores_of_this_machine(name: str) -> None:
    nodes = nodes_of(name)
    assert "master" in nodes["master"]["group_names"]
    workers = {node: said for node, said in nodes.items() if "workers" in said["group_names"]}
    assert workers
    for said in workers.values():
        assert set(said["testbed_cpus"].split(",")) <= set(CORES)
    addresses = [said["ansible_host"] for said in nodes.values()]
    assert len(set(addresses)) == len(nodes)
    assert all(address.startswith("198.18.99.") for address in addresses)


def test_one_worker_has_all_cores_and_says_so() -> None:
    nodes = nodes_of("one-worker")
    assert set(nodes) == {"master", "worker1"}
    worker = nodes["worker1"]
    assert worker["testbed_cpus"].split(",") == CORES
    assert worker["worker_threads"] == len(CORES)
    assert worker["worker_pinning"] == "all cores on one worker"


def test_a_master_that_works_is_in_both_groups() -> None:
    nodes = nodes_of("master-works")
    assert {"master", "workers"} <= set(nodes["master"]["group_names"])
    assert len([said for said in nodes.values() if "workers" in said["group_names"]]) == 3
    if len(CORES) > 2:
        assert len({said["testbed_cpus"] for said in nodes.values()}) == 3
