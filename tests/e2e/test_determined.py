"""Determined: runs that end early, its database and restoring a dump; on test_loop.py's testbed."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.determined import DET, ENDED, PSQL, experiments, matrix_of, slots, states, table
from tests.e2e.matrices import (
    KILLED_ON_WORKER2,
    interrupt,
    kill_in_training,
    nothing_runs,
    records,
    small,
    start_training,
)
from tests.e2e.testbeds import Testbed, wait_for
from tests.standins import given
from training.spec import RunSpec

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("provisioned")]

DUMPS = "/var/backups/trainbed"
#: A table without which no experiment is left.
EXPERIMENTS = "standin" if given.is_standin() else "experiments CASCADE"


def test_a_slow_worker_takes_part_in_equal_work(testbed: Testbed) -> None:
    matrix = small(testbed, "determined-slow", stacks="determined", epochs=1)
    axes = matrix.read_text(encoding="utf-8").replace("seed: [1]", "seed: [1], slow_worker: [null, 0.5]")
    matrix.write_text(axes, encoding="utf-8")
    testbed.make("matrix", f"MATRIX={matrix}")
    found = {
        record["specification"]["conditions"]["slow_worker"]: record
        for record in records(testbed, "determined-slow")
    }
    assert sorted(found, key=str) == [0.5, None]
    assert {record["status"] for record in found.values()} == {"ok"}
    assert len({record["weights_digest"] for record in found.values()}) == 1
    # Half of one core.
    (log,) = (testbed.root / "results/determined-slow").glob(f"*/{found[0.5]['run_id']}/01/ansible.log")
    limited = log.read_text(encoding="utf-8").partition("Limit the processor time of the last worker")[2]
    assert "worker2" in limited.partition("TASK [")[0]
    quota = testbed.node("worker2", "systemctl show system.slice --property=CPUQuotaPerSecUSec --value")
    assert quota.output.strip() == "infinity"


def test_an_interrupted_experiment_is_ended(testbed: Testbed) -> None:
    matrix = matrix_of(testbed, "determined-interrupted", 300)
    interrupt(start_training(testbed, "make", "--no-print-directory", "matrix", matrix))
    assert [record["status"] for record in records(testbed, "determined-interrupted")] == ["interrupted"]
    assert states(testbed)[-1] == "CANCELED"
    wait_for("nothing runs", lambda: nothing_runs(testbed), 30)


def test_an_experiment_in_error_has_a_record_with_its_reason(testbed: Testbed) -> None:
    matrix = matrix_of(testbed, "determined-killed", 300)
    # The previous test left a folder with the same name there.
    testbed.node("master", "rm -rf /srv/trainbed/shared/runs/determined-w2-e300-*")
    process = testbed.start("make", "--no-print-directory", "matrix", matrix)
    kill_in_training(testbed, process, "determined-w2-e300-*/*-01")
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0, output
    (record,) = records(testbed, "determined-killed")
    assert record["status"] == "failed"
    assert re.match(KILLED_ON_WORKER2, record["reason"]), record["reason"]
    assert "determined/experiment.json" in record["files"] and "logs/trial.log" in record["files"]
    assert states(testbed)[-1] == "ERROR"


@pytest.mark.usefixtures("measured")
def test_a_search_is_submitted_around_a_run(testbed: Testbed) -> None:
    pattern = "quick/*/determined-w1-*/*/record.json"
    record = next(path for path in (testbed.root / "results").glob(pattern))
    done = testbed.playbook("search", "-e", json.dumps({"search_record": str(record)}))
    assert re.search(r"Created experiment \d+", done.output)
    number = max(experiments(testbed))
    # The stand-in gives a trial no cluster information: the launcher says so and exits, on every trial.
    ends = "ERROR" if given.is_standin() else "COMPLETED"
    wait_for("the search ends", lambda: states(testbed)[-1] in ENDED, 1200)
    assert states(testbed)[-1] == ends
    trials = table(testbed, f"experiment list-trials {number}")
    assert len(trials) == 8 and len({trial["H-Params"] for trial in trials}) == 8
    if given.is_standin():
        log = testbed.node("master", f"{DET} trial logs {trials[0]['Trial ID']}").output
        assert "A search needs a Determined cluster" in log


@given.real_only("gives trials no Core API, so none can be stopped at a rung")
@pytest.mark.usefixtures("measured")
def test_a_search_stops_trials_that_others_outdo(testbed: Testbed) -> None:
    pattern = "quick/*/determined-w1-*/*/record.json"
    record = next(path for path in (testbed.root / "results").glob(pattern))
    whole = RunSpec.model_validate(json.loads(record.read_bytes())["specification"]).work.steps
    testbed.playbook("search", "-e", json.dumps({"search_record": str(record)}))
    wait_for("the search ends", lambda: states(testbed)[-1] in ENDED, 1200)
    trials = table(testbed, f"experiment list-trials {max(experiments(testbed))}")
    batches = [int(trial["# of Batches"]) for trial in trials]
    assert max(batches) == whole and min(batches) < whole


@given.real_only("answers with recorded metrics and checkpoints, not with those of the run")
@pytest.mark.usefixtures("measured")
def test_determined_knows_the_figures_that_training_reported(testbed: Testbed) -> None:
    found = [each for each in records(testbed, "quick") if each["specification"]["stack"] == "determined"]
    assert found
    for record in found:
        place = f"{record['campaign']}/{record['run_id']}/{record['attempt']:02d}"
        kept = testbed.root / "results/quick" / place / "outputs/determined/experiment.json"
        (trial,) = json.loads(kept.read_text(encoding="utf-8"))["trials"]
        reported = [each["validation_accuracy"] for each in trial["metrics"]["validation"]]
        assert reported == [each["validation_accuracy"] for each in record["epochs"]]


def test_a_master_that_goes_away_finds_its_agents_again(testbed: Testbed) -> None:
    restarts = "systemctl show determined-agent --property=NRestarts --value"
    before = int(testbed.node("worker1", restarts).output)
    testbed.node("master", "systemctl stop determined-master")
    wait_for("an agent gave up", lambda: int(testbed.node("worker1", restarts).output) > before + 1, 90)
    testbed.node("master", "systemctl start determined-master")
    wait_for("both agents are back", lambda: slots(testbed) == 2, 60)


def test_a_dump_brings_experiments_and_users_back(testbed: Testbed) -> None:
    kept = states(testbed)
    assert len(kept) >= 2
    testbed.node("master", "systemctl start trainbed-dump.service")
    testbed.node("master", f"{PSQL}=determined --command='DROP TABLE {EXPERIMENTS}'")
    done = testbed.playbook("restore")
    assert "the previous one is kept as determined_before_" in re.sub(r"\s+", " ", done.output)
    assert states(testbed) == kept
    assert (
        "determined_before_"
        in testbed.node("master", f"{PSQL}=postgres --command='SELECT datname FROM pg_database'").output
    )


def test_what_is_no_dump_changes_nothing(testbed: Testbed) -> None:
    testbed.node("master", f"echo no dump > {DUMPS}/bad.dump")
    refused = testbed.playbook("restore", "-e", f"postgresql_restore_file={DUMPS}/bad.dump", check=False)
    assert refused.code != 0
    assert "can't be restored, and nothing was changed" in re.sub(r"\s+", " ", refused.output)
    assert states(testbed)
    testbed.node("master", "test ! -e /var/lib/trainbed/lock")


def test_only_the_last_dumps_are_kept(testbed: Testbed) -> None:
    old = f"cd {DUMPS} && for day in $(seq 10 30); do touch determined-202001${{day}}T000000Z.dump; done"
    testbed.node("master", f"{old} && systemctl start trainbed-dump.service")
    names = testbed.node("master", f"ls {DUMPS}/determined-*.dump").output.split()
    assert len(names) == 14
    assert not names[-1].split("/")[-1].startswith("determined-2020")
