"""What every stack must do. Each check is independent; the first ones share their runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bench import GIVEN, ROOT, WAIT_S, Bench

Record = dict[str, Any]


@pytest.fixture(scope="module")
def weights(bench: Bench) -> list[Record]:
    """Records of the same work on this stack and its peer: one worker, two, all; slots; tokens in the run."""
    everyone = len(bench.workers)
    runs: list[dict[str, Any]] = []
    for workers in sorted({1, bench.several, everyone}):
        runs += [bench.peer(workers=workers), {"stack": bench.stack, "workers": workers}]
    runs.append({"stack": bench.stack, "workers": bench.several, "tokenizing": "in_run"})
    if bench.fits_two_by_two:
        single = {"stack": four_of_one(bench), "workers": 4, "slots_per_worker": 1}
        runs += [{"stack": bench.stack, "workers": 2, "slots_per_worker": 2}, single]
    runs = [{"slots_per_worker": bench.slots_on(run["workers"])} | run for run in runs]
    unique = [run for at, run in enumerate(runs) if run not in runs[:at]]
    return bench.run(bench.matrix("weights", unique))


def four_of_one(bench: Bench) -> str:
    """The stack that trains on four workers with one slot each: the first one if this one can't."""
    return bench.stack if bench.takes_some else bench.first


def digest(records: list[Record], stack: str, slots: int, direct: bool = False, **work: Any) -> str:
    """The weights of the only run with these fields of work and conditions, which must be ok."""
    wanted = {"slots_per_worker": slots, "tokenizing": "before"} | work
    wanted["launcher"] = "none" if direct else "stack"
    found = []
    for record in records:
        specification = record["specification"]
        fields = specification["work"] | specification["conditions"]
        if specification["stack"] == stack and all(fields[name] == value for name, value in wanted.items()):
            found.append(record)
    assert len(found) == 1, f"expected one record of {stack} with {wanted}, found {len(found)}"
    assert found[0]["status"] == "ok", found[0]["reason"]
    return str(found[0]["weights_digest"])


def own(bench: Bench, records: list[Record]) -> list[Record]:
    """The records of the stack that is tested, at least one."""
    found = [record for record in records if record["specification"]["stack"] == bench.stack]
    assert found
    return found


@pytest.mark.parametrize("number", ["one", "two", "all"])
def test_the_same_weights_as_its_peer(bench: Bench, weights: list[Record], number: str) -> None:
    workers = {"one": 1, "two": 2, "all": len(bench.workers)}[number]
    if workers > len(bench.workers):
        pytest.skip(f"the inventory has {len(bench.workers)} worker")
    direct = bench.stack == bench.first

    slots = bench.slots_on(workers)

    theirs = digest(weights, bench.first, slots, direct=direct, workers=workers)

    assert digest(weights, bench.stack, slots, workers=workers) == theirs


def test_two_slots_on_two_workers_are_four_workers(bench: Bench, weights: list[Record]) -> None:
    if not bench.fits_two_by_two:
        pytest.skip(
            f"needs four workers with two slots; the inventory has {len(bench.workers)} with {bench.slots}"
        )

    assert digest(weights, bench.stack, 2, workers=2) == digest(weights, four_of_one(bench), 1, workers=4)


def test_tokens_made_in_the_run_are_the_same_or_it_says_why_not(bench: Bench, weights: list[Record]) -> None:
    workers = bench.several
    mine = {"stack": bench.stack, "workers": workers, "tokenizing": "in_run"}
    if any(record["specification"]["conditions"]["tokenizing"] == "in_run" for record in weights):
        slots = bench.slots_on(workers)
        before = digest(weights, bench.stack, slots, workers=workers)
        assert digest(weights, bench.stack, slots, workers=workers, tokenizing="in_run") == before
    else:
        path = bench.matrix("in-run", [mine])
        plan = subprocess.run(
            [sys.executable, "-m", "experiments", "plan", str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "400"},
        )
        assert f"{bench.stack} can't have tokenizing in_run: " in plan.stdout
        assert "its role does not say that it can" not in plan.stdout


def test_a_run_that_fails_is_a_record_with_its_reason(bench: Bench) -> None:
    # Each step makes the weights nine times as large, so the loss soon is not a number.
    diverges = {
        "stack": bench.stack,
        "workers": bench.several,
        "learning_rate": 10.0,
        "weight_decay": 1.0,
        "epochs": 50,
    }

    (record,) = bench.run(bench.matrix("fails", [diverges]))

    assert record["status"] == "failed"
    assert "DivergedError" in record["reason"], record["reason"]
    assert record["launch"]["exit_code"] != 0, "the command failed, but launch.json says it did not"
    assert bench.leftovers() == {}


def test_a_rank_that_is_killed_is_told_of_by_the_others(bench: Bench) -> None:
    if len(bench.workers) < 2:
        pytest.skip("the inventory has only one worker, and no other rank could tell")
    with bench.training("killed") as (matrix, process):
        # A stack may choose its workers.
        ranks = bench.ranks()
        others = [node for node, numbers in ranks.items() if numbers and 0 not in numbers.values()]
        assert others, (
            f"no worker has ranks (processes with RANK in their environment) without rank 0: {ranks}"
        )
        bench.on(others[0], f"kill -KILL {' '.join(map(str, ranks[others[0]]))}")

        assert bench.ended(process) != 0
    (record,) = bench.records(matrix)
    assert record["status"] == "failed"
    assert re.search(r"Rank \d+ .*(is gone|ended without a word|was killed by signal 9)", record["reason"]), (
        record["reason"]
    )
    assert bench.leftovers() == {}


def test_each_rank_is_started_once(bench: Bench, weights: list[Record]) -> None:
    for record in own(bench, weights):
        work = record["specification"]["work"]
        started = sorted(start["rank"] for start in record["starts"])
        assert started == list(range(work["workers"] * work["slots_per_worker"])), record["starts"]


def test_ranks_have_the_variables_that_the_run_gives_them(bench: Bench, weights: list[Record]) -> None:
    for record in own(bench, weights):
        for rank in record["ranks"]:
            found = rank["census"]["environment"]
            assert {name: found.get(name) for name in GIVEN} == GIVEN


def test_a_run_whose_worker_restarts_is_no_clean_measurement(bench: Bench) -> None:
    if len(bench.workers) < 2:
        pytest.skip("the inventory has only one worker, and rank 0's stays up")
    with bench.training("restarted", epochs=80) as (matrix, process):
        ranks = bench.ranks()
        others = [node for node, numbers in ranks.items() if numbers and 0 not in numbers.values()]
        assert others, f"no worker has ranks without rank 0: {ranks}"
        bench.restart_in_training(others[0])

        # Twice, if it is made once more.
        status = bench.ended(process, 3 * WAIT_S)
    records = sorted(bench.records(matrix), key=lambda record: record["attempt"])
    first = records[0]
    if first["status"] == "disturbed":
        # Something began the work again: nothing of it is measured, and the run is made once more.
        starts = [start["rank"] for start in first["starts"]]
        assert len(set(starts)) < len(starts)
        assert "more than once" in first["reason"]
        assert [record["status"] for record in records[1:]] == ["ok"] and status == 0
        assert records[1]["weights_digest"] == first["weights_digest"]
    else:
        assert first["status"] == "failed" and status != 0, first["reason"]
        assert len(records) == 1
    assert bench.leftovers() == {}


def test_a_launch_that_can_not_start_is_a_record_with_its_reason(bench: Bench) -> None:
    needed = [
        (group, path)
        for group in ("master", "workers")
        for path in getattr(bench.declared, group).needed_to_launch
    ]
    assert needed, "its meta/stack.yml declares nothing as needed_to_launch"
    matrix = bench.matrix("not-started", [{"stack": bench.stack, "workers": len(bench.workers)}])

    with bench.without(*needed[0]):
        (record,) = bench.run(matrix)

    assert record["status"] == "failed"
    missing = needed[0][1]
    assert re.search(rf"ended with [1-9]|{re.escape(missing)}", record["reason"]), record["reason"]
    assert record["epochs"] == [] and record["weights_digest"] is None
    assert bench.leftovers() == {}


def test_an_interrupt_ends_the_run(bench: Bench) -> None:
    with bench.training("interrupted") as (matrix, process):
        os.killpg(process.pid, signal.SIGINT)

        assert bench.ended(process) != 0
    (record,) = bench.records(matrix)
    assert record["status"] == "interrupted" and "SIGINT" in record["reason"]
    assert bench.leftovers() == {}


def test_a_stop_from_elsewhere_ends_the_run(bench: Bench) -> None:
    with bench.training("stopped") as (matrix, process):
        playbook("stop")

        assert bench.ended(process) != 0
    (record,) = bench.records(matrix)
    assert record["status"] == "failed"
    assert re.search(r"stopped|told to stop|cancell?ed", record["reason"]), record["reason"]
    assert bench.leftovers() == {}


def test_two_at_once_end_with_the_weights_of_one_alone(bench: Bench, weights: list[Record]) -> None:
    both = [{"stack": bench.stack, "workers": 1, "seed": seed} for seed in (1, 2)]

    made = bench.run(bench.matrix("two", both, together=[[1, 2]]))

    assert [record["status"] for record in made] == ["ok", "ok"], [record["reason"] for record in made]
    assert {record["together"]["begun"] for record in made} == {made[0]["together"]["begun"]}
    alone = digest(weights, bench.stack, 1, workers=1)
    assert [r["weights_digest"] for r in made if r["specification"]["work"]["seed"] == 1] == [alone]
    assert bench.leftovers() == {}


def test_a_second_provisioning_changes_nothing(bench: Bench) -> None:
    assert bench.stack in bench.installed

    recap = playbook("provision").rsplit("PLAY RECAP", 1)[-1]

    counts = dict(re.findall(r"^(\S+)\s+: .*changed=(\d+)", recap, re.MULTILINE))
    assert set(counts) >= {bench.master, *bench.workers}
    assert set(counts.values()) == {"0"}, recap


def playbook(name: str) -> str:
    """Run a playbook to its end; its output."""
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", f"playbooks/{name}.yml"],
        cwd=ROOT,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout
