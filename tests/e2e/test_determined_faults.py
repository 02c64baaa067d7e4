"""What is done to Determined, mostly in the middle of a run; the same on real packages and on the stand-in.

After each test the cluster is usable: nothing is left running, and all slots are offered. A worker that boots
anew is among what every stack must stand (tests/conformance).
"""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import provision
from tests.e2e.determined import DET, ENDED, PASSWORD, TASKS, TOKEN, experiments, matrix_of, slots, states
from tests.e2e.machines import Container, small_disk
from tests.e2e.matrices import KILLED_ON_WORKER2, epochs_trained, interrupt, nothing_runs, records, small
from tests.e2e.testbeds import Testbed, wait_for
from tests.standins import given
from tests.standins.determined import packages

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("provisioned")]

#: Seconds that an undisturbed training takes: longer than anything that is done to it in its middle.
LASTS_S = 180
AWAY_S = 60
WORKERS = ("worker1", "worker2")
Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Undisturbed:
    """A run that takes about as long as `LASTS_S`, as it ends if nothing happens."""

    epochs: int
    weights: str


@pytest.fixture(scope="module")
def undisturbed(provisioned: Testbed) -> Undisturbed:
    """Made once, with as many epochs as this machine needs for the time."""
    few = 4
    paced = run(provisioned, "determined-pace", few)
    epochs = math.ceil(LASTS_S / min(epoch["seconds"] for epoch in paced["epochs"]))
    return Undisturbed(epochs, run(provisioned, "determined-undisturbed", epochs)["weights_digest"])


@pytest.fixture(autouse=True)
def usable(testbed: Testbed) -> Iterator[None]:
    """After each test nothing is left running, as the master or a node sees it, and all slots are offered."""
    yield
    wait_for("both agents offer their slots", lambda: slots(testbed) == 2, 120)
    wait_for("no experiment is active", lambda: not set(states(testbed)) - set(ENDED), 60)
    wait_for("nothing runs", lambda: nothing_runs(testbed), 60)
    wait_for(
        "no node has a container of it", lambda: not any(tasks_on(testbed, node) for node in WORKERS), 60
    )
    testbed.node("master", "test ! -e /var/lib/trainbed/lock")


def tasks_on(testbed: Testbed, node: str) -> list[str]:
    """The containers of Determined's tasks that run on a node."""
    return testbed.node(node, TASKS).output.split()


def run(testbed: Testbed, name: str, epochs: int) -> Record:
    """The record of a run of this many epochs that nothing happens to; it is ok."""
    testbed.make("matrix", matrix_of(testbed, name, epochs))
    (record,) = records(testbed, name)
    assert record["status"] == "ok", record["reason"]
    return record


def training(testbed: Testbed, name: str, epochs: int) -> subprocess.Popen[str]:
    """The command that runs a matrix of one run of this many epochs, once that run trains."""
    return in_training(testbed, matrix_of(testbed, name, epochs), epochs)


def in_training(testbed: Testbed, matrix: str, epochs: int) -> subprocess.Popen[str]:
    """Start the only run of a matrix, which has this many epochs; return once it has trained some."""
    runs = f"determined-w2-e{epochs}-*/*"
    before = epochs_trained(testbed, runs)
    process = testbed.start("make", "--no-print-directory", "matrix", matrix)
    wait_for(
        "the run trains",
        lambda: epochs_trained(testbed, runs) >= before + 2 or process.poll() is not None,
        300,
    )
    assert process.poll() is None, process.communicate()[0]
    return process


def ended(testbed: Testbed, process: subprocess.Popen[str], name: str) -> Record:
    """The record of the run that this command makes, once it has ended."""
    output, _ = process.communicate(timeout=900)
    print(output[-2000:])
    (record,) = records(testbed, name)
    return record


def test_a_master_that_is_away_in_a_run_is_waited_for(testbed: Testbed, undisturbed: Undisturbed) -> None:
    name = "determined-master-away"
    process = training(testbed, name, undisturbed.epochs)
    testbed.node("master", "systemctl stop determined-master")
    try:
        time.sleep(AWAY_S)
        assert process.poll() is None, process.communicate()[0]
    finally:
        testbed.node("master", "systemctl start determined-master")
    record = ended(testbed, process, name)
    assert record["status"] == "ok", record["reason"]
    assert record["weights_digest"] == undisturbed.weights
    (note,) = [note for note in record["notes"] if "master did not answer for" in note]
    seconds = re.search(r"for (\d+) s", note)
    assert seconds and int(seconds[1]) >= AWAY_S - 10, note
    assert states(testbed)[-1] == "COMPLETED"


def test_an_agent_that_is_killed_in_a_run_comes_back_to_it(
    testbed: Testbed, undisturbed: Undisturbed
) -> None:
    name = "determined-agent-killed"
    restarts = "systemctl show determined-agent --property=NRestarts --value"
    before = int(testbed.node("worker2", restarts).output)
    process = training(testbed, name, undisturbed.epochs)
    testbed.node("worker2", "kill -KILL $(systemctl show determined-agent --property=MainPID --value)")
    wait_for(
        "systemd has started it again", lambda: int(testbed.node("worker2", restarts).output) > before, 60
    )
    record = ended(testbed, process, name)
    assert record["status"] == "ok", record["reason"]
    assert record["weights_digest"] == undisturbed.weights
    assert states(testbed)[-1] == "COMPLETED"


def test_a_container_that_is_killed_from_outside_fails_the_run_with_rank_and_node(
    testbed: Testbed, undisturbed: Undisturbed
) -> None:
    name = "determined-container-killed"
    process = training(testbed, name, undisturbed.epochs)
    (container,) = tasks_on(testbed, "worker2")
    testbed.node("worker2", f"docker kill {container}")
    record = ended(testbed, process, name)
    assert record["status"] == "failed"
    assert re.match(KILLED_ON_WORKER2, record["reason"]), record["reason"]
    assert process.returncode != 0 and states(testbed)[-1] == "ERROR"


def test_a_worker_that_restarts_in_a_run_makes_it_no_measurement(
    testbed: Testbed, undisturbed: Undisturbed
) -> None:
    name = "determined-worker-restarted"
    process = training(testbed, name, undisturbed.epochs)
    testbed.machine("worker2").restart()
    output, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, output
    first, second = sorted(records(testbed, name), key=lambda record: record["attempt"])
    assert (first["status"], second["status"]) == ("disturbed", "ok"), first["reason"]
    assert {first["weights_digest"], second["weights_digest"]} == {undisturbed.weights}
    assert "more than once" in first["reason"] and len(first["starts"]) == 4 and len(second["starts"]) == 2


def test_a_database_that_is_restarted_in_a_run_ends_it_with_its_reason_or_not_at_all(
    testbed: Testbed, undisturbed: Undisturbed
) -> None:
    name = "determined-database-restarted"
    process = training(testbed, name, undisturbed.epochs)
    testbed.node("master", "systemctl restart postgresql")
    record = ended(testbed, process, name)
    # A report that the real master cannot store is an error of the trial; the stand-in stores none.
    if record["status"] == "ok" or given.is_standin():
        assert record["status"] == "ok", record["reason"]
        assert record["weights_digest"] == undisturbed.weights
    else:
        assert record["status"] == "failed"
        assert re.search(r"SQLSTATE|terminating connection|connection refused|Internal", record["reason"]), (
            record["reason"]
        )
    assert states(testbed)[-1] == ("COMPLETED" if record["status"] == "ok" else "ERROR")


def test_a_wrong_password_is_one_sentence_and_the_right_one_is_enough(testbed: Testbed) -> None:
    matrix, before = matrix_of(testbed, "determined-password", 1), experiments(testbed)
    # Without its token the client must log in.
    testbed.node("master", f"cp -a {PASSWORD} {PASSWORD}.kept && echo Tb1wrong > {PASSWORD} && : > {TOKEN}")
    try:
        refused = testbed.make("matrix", matrix, check=False, COLUMNS="400")
    finally:
        testbed.node("master", f"mv {PASSWORD}.kept {PASSWORD}")
    assert refused.code != 0
    told = " ".join(refused.output.split())
    assert f"Determined does not let trainbed in with the password in {PASSWORD}" in told
    assert [each for each in records(testbed, "determined-password") if each["status"] == "ok"] == []
    assert experiments(testbed) == before
    testbed.make("matrix", matrix)
    assert records(testbed, "determined-password")[-1]["status"] == "ok"


@given.real_only("can't pause an experiment")
def test_a_run_that_is_paused_goes_on_later_with_the_same_bits(
    testbed: Testbed, undisturbed: Undisturbed
) -> None:
    name = "determined-paused"
    path = small(testbed, name, stacks="determined", epochs=undisturbed.epochs)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("save: last", "save: last, checkpoint_every_epochs: 1"), encoding="utf-8")
    process = in_training(testbed, f"MATRIX={path}", undisturbed.epochs)
    number = max(experiments(testbed))
    testbed.node("master", f"{DET} experiment pause {number}")
    wait_for("it is paused", lambda: experiments(testbed)[number] == "PAUSED", 60)
    wait_for("its containers are gone", lambda: not any(tasks_on(testbed, node) for node in WORKERS), 60)
    testbed.node("master", f"{DET} experiment activate {number}")
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output
    # Its ranks were started twice, so it measures nothing, and the run was made once more.
    paused, again = sorted(records(testbed, name), key=lambda record: record["attempt"])
    assert (paused["status"], again["status"]) == ("disturbed", "ok")
    assert {paused["weights_digest"], again["weights_digest"]} == {undisturbed.weights}
    assert "Training went on from step" in paused["reason"]
    assert any("paused" in note for note in paused["notes"])
    assert experiments(testbed)[number] == "COMPLETED"


def container(testbed: Testbed, node: str) -> Container:
    """The container that a node is."""
    machine = testbed.machine(node)
    assert isinstance(machine, Container)
    return machine


def test_a_run_whose_shared_storage_is_full_says_so(
    testbed: Testbed, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    name, runs = "determined-full", "/srv/trainbed/shared/runs"
    nodes = [container(testbed, node) for node in ("master", *WORKERS)]
    with small_disk(nodes, runs, 256, tmp_path):
        process = training(testbed, name, undisturbed.epochs)
        try:
            fill = f"dd if=/dev/zero of={runs}/filler bs=1M"
            testbed.node("master", f"LC_ALL=C {fill} 2>&1 | grep 'No space left on device'")
            record = ended(testbed, process, name)
        finally:  # while anything runs, it uses the disk
            if process.poll() is None:
                interrupt(process)
            wait_for("nothing runs", lambda: nothing_runs(testbed), 60)
    assert record["status"] == "failed" and "No space left on device" in record["reason"], record["reason"]
    assert process.returncode != 0 and states(testbed)[-1] == "ERROR"


def digest(testbed: Testbed, node: str, path: str) -> str:
    """The digest of a file on a node."""
    return testbed.node(node, f"sha256sum {path}").output.split()[0]


def test_tls_is_switched_on_its_certificate_is_replaced_and_it_is_switched_off(testbed: Testbed) -> None:
    secured, own = "ARGS=-e determined_tls=true", "/etc/determined/master.crt"
    known = "/etc/trainbed/determined/master.crt"  # what an agent checks the master's by
    try:
        testbed.make("provision", secured)
        assert not testbed.make("provision", secured).changed()
        first = digest(testbed, "master", own)
        assert digest(testbed, "worker1", known) == first
        run(testbed, "determined-tls", 1)

        testbed.node(
            "master", "rm /etc/determined/master.crt /etc/determined/master.csr /etc/determined/master.key"
        )
        testbed.make("provision", secured)
        second = digest(testbed, "master", own)
        assert second != first and digest(testbed, "worker1", known) == second
        run(testbed, "determined-tls-again", 1)
    finally:
        provision(testbed)
    run(testbed, "determined-tls-off", 1)
    # Nothing listens with TLS any more.
    listening = testbed.node("master", "ss --listening --tcp --numeric --no-header").output
    assert not re.search(r":8443\s", listening)


def installed(testbed: Testbed) -> dict[str, str]:
    """The digest of the package that is installed on each node."""
    programs = {"master": "determined-master", "worker1": "determined-agent", "worker2": "determined-agent"}
    return {
        node: digest(testbed, node, f"/var/cache/trainbed/{program}_*.deb")
        for node, program in programs.items()
    }


@given.standin_only("there is no second build of the same version")
def test_another_build_of_the_same_version_is_installed_and_everything_is_kept(testbed: Testbed) -> None:
    before, kept = installed(testbed), experiments(testbed)
    other = packages.build(testbed.root / "other-packages", variant="another build")
    try:
        testbed.make("provision", f"determined_packages={other}")
        now = installed(testbed)
        assert all(now[node] != before[node] for node in before)
        variant = "cat /usr/share/determined-standin/{}/variant"
        assert testbed.node("master", variant.format("master")).output.strip() == "another build"
        assert testbed.node("worker1", variant.format("agent")).output.strip() == "another build"
        assert not testbed.make("provision").changed()
        assert experiments(testbed) == kept
        run(testbed, "determined-exchanged", 1)
    finally:
        provision(testbed)
    assert installed(testbed) == before
    run(testbed, "determined-back", 1)
