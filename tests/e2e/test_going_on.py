"""A matrix, or a provisioning, goes on after a fault: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.matrices import epochs_trained, nothing_runs, records, small
from tests.e2e.testbeds import Testbed, kill_group, wait_for

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("provisioned")]

LONG = 15  # epochs
RUNS = "ddp-w2-e15-*/*"


def statuses(testbed: Testbed, name: str) -> dict[str, list[str]]:
    """The statuses of each stack's attempts, oldest first."""
    found: dict[str, list[str]] = {}
    for record in records(testbed, name):
        found.setdefault(record["specification"]["stack"], []).append(record["status"])
    return found


@contextmanager
def little_room(testbed: Testbed, node: str, place: str, size: str) -> Iterator[None]:
    """Mount an empty disk of this size over a folder of a node, with the folder's owner and mode."""
    testbed.node(
        node,
        f"cp -a {place} /root/kept && mount -t tmpfs -o size={size} full {place} && "
        f"chown --reference=/root/kept {place} && chmod --reference=/root/kept {place}",
    )
    try:
        yield
    finally:
        testbed.node(node, f"umount {place} && rm -rf /root/kept")


def test_after_the_controller_was_lost_while_provisioning(testbed: Testbed) -> None:
    environment = "/opt/trainbed/env/current"
    paused = "systemctl is-active trainbed-timers-resume.timer"
    testbed.node("worker2", f"rm {environment}/DIGEST")  # so that it is installed again
    process = testbed.start("make", "--no-print-directory", "provision")
    installing = "pgrep --full '[i]nstall-environment'"
    wait_for(
        "the environment is being installed",
        lambda: testbed.node("worker2", installing, check=False).code == 0 or process.poll() is not None,
        600,
    )
    assert process.poll() is None, process.communicate()[0]
    assert testbed.node("worker1", paused).output.strip() == "active"
    kill_group(process, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()  # the workers of Ansible that are left may hold its other end

    assert "that process has ended, so the next command takes it over" in testbed.make("status").output
    testbed.make("provision")
    assert testbed.node("worker1", paused, check=False).output.strip() == "inactive"
    testbed.make("verify", "ARGS=-k environment")
    assert not testbed.make("provision").changed()


def test_after_a_node_was_rebooted(testbed: Testbed) -> None:
    file = small(testbed, "rebooted", epochs=LONG)
    before = epochs_trained(testbed, RUNS)
    process = testbed.start("make", "--no-print-directory", "matrix", f"MATRIX={file}")
    wait_for(
        "training is under way",
        lambda: epochs_trained(testbed, RUNS) > before or process.poll() is not None,
        300,
    )
    assert process.poll() is None, process.communicate()[0]
    testbed.machine("worker2").restart()
    output, _ = process.communicate(timeout=600)
    assert process.returncode != 0, output
    then = statuses(testbed, "rebooted")
    assert then["ddp"] == ["failed"], output
    testbed.make("matrix", f"MATRIX={file}")
    after = statuses(testbed, "rebooted")
    assert after["ddp"] == ["failed", "ok"]
    # The second command did not repeat what was done before it.
    assert after["spark"] == (then["spark"] if then["spark"] == ["ok"] else [*then["spark"], "ok"])
    assert nothing_runs(testbed)


def test_after_a_nodes_disk_was_full(testbed: Testbed) -> None:
    # Reviews that no test staged before, so the data set is the first thing that needs room.
    file = small(testbed, "nodefull", stacks="spark", epochs=1)
    file.write_text(file.read_text().replace("seed: 0", "seed: 7"), encoding="utf-8")
    with little_room(testbed, "worker2", "/var/lib/trainbed/data", "64k"):
        refused = testbed.make("matrix", f"MATRIX={file}", check=False)
    assert refused.code != 0
    assert "worker2: /var/lib/trainbed/data has no room for the data set" in refused.output
    assert records(testbed, "nodefull") == []

    testbed.make("matrix", f"MATRIX={file}")
    assert statuses(testbed, "nodefull") == {"spark": ["ok"]}


def test_after_the_controllers_disk_was_full(testbed: Testbed) -> None:
    file = small(testbed, "full", epochs=1)
    results = testbed.root / "results" / "full"
    testbed.make("matrix", f"MATRIX={file}", "ARGS=--only 'ddp-*'")
    kept = testbed.root / "kept"
    subprocess.run(["cp", "-a", results, kept], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "full", results], check=True)
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", results], check=True)
        filler = results / ".filler"
        with filler.open("wb") as full:
            subprocess.run(["cat", "/dev/zero"], stdout=full, stderr=subprocess.DEVNULL, check=False)
        refused = testbed.make("matrix", f"MATRIX={file}", check=False)
        assert refused.code != 0
        assert "The disk is full" in refused.output and "run the same command again" in refused.output
        assert statuses(testbed, "full") == {"ddp": ["ok"]}
        assert nothing_runs(testbed)
        filler.unlink()
        done = testbed.make("matrix", f"MATRIX={file}")
        assert "1 of 2 runs are done already" in done.output
        found = statuses(testbed, "full")
        assert found["ddp"] == ["ok"] and found["spark"][-1] == "ok"
        testbed.run("python", "-m", "experiments", "check", "results/full")
    finally:
        subprocess.run(["umount", results], check=True)
