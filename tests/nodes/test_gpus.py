"""NVIDIA GPUs of nodes that have some: driver, toolkit, engine and image see the same ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from testinfra.host import Host

from tests.nodes import cluster


@pytest.fixture
def listed(node: Host, name: str) -> dict[str, Any]:
    """The node's GPUs, on the bus and by its driver; skips a node without one, or whose GPUs are not used."""
    if cluster.variables(name)["worker_device"] != "cuda":
        pytest.skip("GPUs are left alone: worker_device is not cuda")
    pci = node.check_output("grep -l 0x10de /sys/bus/pci/devices/*/vendor 2> /dev/null || true")
    if not pci:
        pytest.skip("the node has no NVIDIA device on its PCI bus")
    found: dict[str, Any] = json.loads(node.check_output("/opt/trainbed/list-gpus"))
    if not found["pci"]:
        pytest.skip("the node has no NVIDIA GPU")
    return found


@pytest.mark.on("workers")
def test_the_driver_answers_for_every_gpu(listed: dict[str, Any]) -> None:
    assert listed["trouble"] is None
    assert len(listed["gpus"]) == len(listed["pci"])


@pytest.mark.on("workers")
def test_the_kernel_runs_the_installed_driver(node: Host, listed: dict[str, Any]) -> None:
    assert node.check_output("modinfo --field version nvidia") == listed["module"]
    assert {gpu["driver"] for gpu in listed["gpus"]} == {listed["module"]}
    assert not listed["nouveau"]


@pytest.mark.on("workers")
def test_the_driver_stays_in_memory_between_runs(node: Host, listed: dict[str, Any]) -> None:
    assert listed["gpus"]
    assert node.service("nvidia-persistenced").is_running


@pytest.mark.on("workers")
@pytest.mark.role("image")
def test_a_container_sees_the_nodes_gpus(node: Host, listed: dict[str, Any]) -> None:
    image = node.check_output("cat /etc/trainbed/image")
    seen = node.check_output(
        "docker run --rm --gpus all %s nvidia-smi --query-gpu=uuid --format=csv,noheader", image
    )
    assert sorted(seen.split()) == sorted(gpu["uuid"] for gpu in listed["gpus"])


@pytest.mark.on("workers")
def test_the_toolkits_packages_are_of_one_version(node: Host, listed: dict[str, Any]) -> None:
    assert listed["gpus"]
    names = ["nvidia-container-toolkit", "nvidia-container-toolkit-base"]
    names += ["libnvidia-container-tools", "libnvidia-container1"]
    assert len({node.package(name).version for name in names}) == 1
