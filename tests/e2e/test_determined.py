"""Determined: runs that end early, its database and restoring a dump; on test_loop.py's testbed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.determined import PSQL, matrix_of, slots, states
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

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("provisioned")]

DUMPS = "/var/backups/trainbed"
HOOK = "/opt/trainbed/determined/startup-hook.sh"
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


def outputs(testbed: Testbed, record: dict[str, Any]) -> Path:
    """What a run left."""
    place = f"{record['matrix']}/{record['campaign']}/{record['run_id']}/{record['attempt']:02d}"
    return testbed.root / f"results/{place}/outputs"


def with_hook(testbed: Testbed, name: str, values: str) -> str:
    """Write a matrix of runs with these values of `startup_hook`; returns `make`'s argument for it."""
    matrix = small(testbed, name, stacks="determined", epochs=1)
    axes = matrix.read_text(encoding="utf-8").replace("seed: [1]", f"seed: [1], startup_hook: [{values}]")
    matrix.write_text(axes, encoding="utf-8")
    return f"MATRIX={matrix}"


def test_ranks_import_what_a_startup_hook_installed_and_compute_the_same(testbed: Testbed) -> None:
    testbed.make("matrix", with_hook(testbed, "determined-hook", "none, install"))
    found = {
        record["specification"]["conditions"]["startup_hook"]: record
        for record in records(testbed, "determined-hook")
    }
    assert sorted(found) == ["install", "none"]
    assert {record["status"] for record in found.values()} == {"ok"}
    assert len({record["weights_digest"] for record in found.values()}) == 1
    for value, record in found.items():
        left = outputs(testbed, record)
        log = (left / "logs/trial.log").read_text(encoding="utf-8")
        took = json.loads((left / "determined/experiment.json").read_text(encoding="utf-8"))[
            "startup_hooks_s"
        ]
        assert log.count("+ test -f startup-hook.sh") == 2  # once in each container
        paths = [rank["census"]["environment"].get("PYTHONPATH", "") for rank in record["ranks"]]
        installs = value == "install"
        assert len(took) == log.count("Successfully installed") == (2 if installs else 0)
        assert ["/tmp/startup-hook/libraries" in path for path in paths] == [installs, installs]
        if installs:
            assert 0 < min(took) < record["phases"]["launch"]


def test_a_startup_hook_that_fails_ends_the_run_with_what_it_said(testbed: Testbed) -> None:
    matrix = with_hook(testbed, "determined-no-hook", "install")
    broken = f"cp --preserve {HOOK} {HOOK}.kept && sed -i s/tensorboard/no-such-library/ {HOOK}"
    testbed.node("master", broken)
    try:
        done = testbed.make("matrix", matrix, check=False)
    finally:
        testbed.node("master", f"mv {HOOK}.kept {HOOK}")
    assert done.code != 0
    (record,) = records(testbed, "determined-no-hook")
    assert record["status"] == "failed"
    assert re.search(r"\(StartupHookError: .* has no no-such-library\)", record["reason"]), record["reason"]
    assert states(testbed)[-1] == "ERROR"


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


def search_file(testbed: Testbed) -> Path:
    """Write a search of four trials, which are compared half way."""
    path = testbed.root / "four.yml"
    content = (testbed.root / "experiments/search/adaptive_asha.yml").read_text(encoding="utf-8")
    content = content.replace("max_trials: 8", "max_trials: 4\n  mode: aggressive\n  divisor: 2")
    path.write_text(content.replace("max_restarts: 1", "max_restarts: 0"), encoding="utf-8")
    return path


def searched(testbed: Testbed) -> dict[str, Any]:
    """search.json of the only search of that file."""
    (path,) = (testbed.root / "results/searches/four").glob("*/search.json")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def record_of(testbed: Testbed) -> str:
    """The record of a measured run on one worker."""
    return str(next((testbed.root / "results").glob("quick/*/determined-w1-*/*/record.json")))


@pytest.mark.usefixtures("measured")
def test_a_search_is_followed_to_its_end_and_kept(testbed: Testbed) -> None:
    shutil.rmtree(testbed.root / "results/searches", ignore_errors=True)
    arguments = ("search", f"RECORD={record_of(testbed)}", f"SEARCH={search_file(testbed)}")
    done = testbed.make(*arguments, check=False)
    search = searched(testbed)
    spec = search["run"]["specification"]["work"]
    steps = spec["epochs"] * -(-spec["data"]["train"] // spec["batch_per_worker"])
    assert [bracket["rungs"][-1] for bracket in search["progress"]["brackets"]] == [steps]
    trials = search["progress"]["trials"]
    (folder,) = (testbed.root / "results/searches/four").iterdir()
    assert (folder / "outputs/experiment.json").is_file() and (folder / "live.jsonl").is_file()
    wait_for("nothing runs", lambda: nothing_runs(testbed), 60)
    testbed.node("master", "test ! -e /var/lib/trainbed/lock")
    if given.is_standin():
        # It gives a trial no cluster information: the launcher says so and exits, and the search fails.
        assert done.code != 0 and search["status"] == "failed" and search["reason"] in done.output
        assert {each["outcome"] for each in trials} == {"failed"} and states(testbed)[-1] == "ERROR"
        logs = list((folder / "outputs/logs").glob("trial-*.log"))
        assert len(logs) == len(trials)
        assert all("A search needs a Determined cluster" in log.read_text(encoding="utf-8") for log in logs)
        return
    assert done.code == 0 and search["status"] == "ok", done.output
    assert len(trials) == 4 and {each["outcome"] for each in trials} <= {"end", "stopped"}
    assert any(each["outcome"] == "end" for each in trials)
    for each in trials:
        if each["outcome"] == "stopped":
            assert each["rung"] is not None and each["batches"] < steps
        else:
            assert each["batches"] == steps
    assert not [note for note in search["progress"]["notes"] if "although" in note]
    told = [json.loads(line)["fraction_done"] for line in (folder / "live.jsonl").read_text().splitlines()]
    assert any(0 < each < 1 for each in told) and told[-1] == 1


@given.real_only("gives trials no Core API, so they end before they could be interrupted")
@pytest.mark.usefixtures("measured")
def test_an_interrupted_search_leaves_nothing_running(testbed: Testbed) -> None:
    shutil.rmtree(testbed.root / "results/searches", ignore_errors=True)
    arguments = ("search", f"RECORD={record_of(testbed)}", f"SEARCH={search_file(testbed)}")
    process = testbed.start("make", "--no-print-directory", *arguments)
    wait_for(
        "a trial has reached something",
        lambda: any(
            '"batches": 0' not in line
            for path in (testbed.root / "results/searches/four").glob("*/live.jsonl")
            for line in path.read_text(encoding="utf-8").splitlines()
            if '"outcome": "running"' in line
        ),
        180,
    )
    interrupt(process)
    search = searched(testbed)
    assert search["status"] == "interrupted" and search["progress"]["trials"]
    assert states(testbed)[-1] == "CANCELED"
    wait_for("nothing runs", lambda: nothing_runs(testbed), 60)
    testbed.node("master", "test ! -e /var/lib/trainbed/lock")


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
