"""The real command, as a process, against a stand-in for ansible-playbook."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from experiments.analysis.figures import figures_of
from experiments.campaign.attempt import STARTED
from experiments.campaign.campaign import open_campaign
from experiments.campaign.preparation import end_orphaned_playbooks
from experiments.cluster.lock import TAKEN_OVER
from experiments.cluster.playbooks import PROGRAM_VARIABLE, Playbooks, process_mark
from experiments.records.record import read_record
from experiments.report.sections.conditions import common_facts
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from experiments.util.files import utc_now
from experiments.util.interrupts import Interrupts
from experiments.util.processes import processes_with
from experiments.util.screen import Screen
from tests.unit.experiments.cluster.test_quiet import BUSY, watched
from tests.unit.experiments.documented_json import documented, fields
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace, wait_until


def state(pid: int) -> str:
    """A process's state as a letter: S while it waits (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    try:
        return state(pid) not in "ZX"
    except OSError:
        return False


def done_already(output: str) -> list[str]:
    """How many runs are done already, of how many, as the first line about it says."""
    return re.findall(r"\d+", next(line for line in output.splitlines() if "already" in line))


def changes(workplace: Workplace, output: str) -> set[str]:
    """What the newest campaign was begun for: `output` has to name all of it, and the campaign before."""
    older, newer = (open_campaign(folder).file for folder in workplace.campaigns()[-2:])
    before, after = older.identity.model_dump(), newer.identity.model_dump()
    found = {name for name in before if before[name] != after[name]} - {"launching_of"}
    words = older.identity.differences(newer.identity)
    assert older.name in output and len(words) == len(found) and all(each in output for each in words)
    return found


LATE = "was not started: it would not end within --max-time"


def test_a_campaign_is_run_recorded_reported_and_checked(workplace: Workplace) -> None:
    status, output = workplace.run("run", "small")
    assert status == 0, output
    assert workplace.calls() == [
        "lock held",
        "prepare",
        "run plain-w1",
        "run plain-w2",
        "run slow-w1",
        "run slow-w2",
        "lock free",
    ]
    records = workplace.records()
    assert list(records) == ["plain-w1/01", "plain-w2/01", "slow-w1/01", "slow-w2/01"]
    record = records["plain-w2/01"]
    assert record.status == "ok" and record.reason is None
    assert record.slowest_rank == 1 and record.train_s == pytest.approx(5.1)
    assert record.phases is not None and sum(record.phases.values()) == pytest.approx(record.total_s)
    assert record.phases["launch"] == pytest.approx(0.1) and record.phases["forward"] == 0.004
    assert [rank.node for rank in record.ranks] == ["worker1", "worker2"]
    assert record.launch is not None and "hunter2" not in record.model_dump_json()
    assert record.weights_digest == records["slow-w2/01"].weights_digest
    assert not list((workplace.root / "results").glob(".prepare-*"))

    # Everything is done: nothing is run again.
    workplace.forget_calls()
    status, output = workplace.run("run", "small")
    assert status == 0 and done_already(output) == ["4", "4"]
    assert workplace.calls() == ["lock held", "prepare", "lock free"]

    campaign = workplace.campaigns()[-1]
    status, output = workplace.run("report", "small")
    assert status == 0 and str(campaign / "report.html") in output
    first = [(campaign / name).read_bytes() for name in ("report.md", "report.html")]
    assert workplace.run("report", "small", "--campaign", campaign.name)[0] == 0
    assert [(campaign / name).read_bytes() for name in ("report.md", "report.html")] == first
    assert b"Equal work gave equal weights" in first[0]

    assert workplace.run("check", "results")[0] == 0
    (campaign / record.run_id / "01" / "outputs" / "rank-1.json").write_text("{}")
    status, output = workplace.run("check", str(campaign))
    (fault,) = workplace.faults()
    assert status == 1 and fault in output
    assert fault.startswith(str(campaign / record.run_id / "01" / "outputs" / "rank-1.json"))
    printed = workplace.run("check", str(campaign), "--json")[1]
    found = json.loads(printed[printed.index("{\n") :])
    assert found == {"campaigns": [{"folder": str(campaign), "faults": [fault], "outside_references": []}]}
    assert fields(found) == documented("check")


def test_only_and_new(workplace: Workplace) -> None:
    assert workplace.run("run", "small", "--only", "plain-w1-*")[0] == 0
    assert list(workplace.records()) == ["plain-w1/01"]
    assert len(workplace.faults()) == 3  # the others have no result
    for more in ((), ("--new",)):
        status, output = workplace.run("run", "small", *more, "--only", "nothing-*")
        assert status == 2 and "nothing-*" in output and "slow-w2-e2-s1-" in output  # those that there are
    assert len(workplace.campaigns()) == 1
    assert workplace.run("run", "small", "--new", "--only", "plain-w1-*")[0] == 0
    assert len(workplace.campaigns()) == 2


def test_warm_ups_are_recorded_and_not_counted(workplace: Workplace) -> None:
    workplace.matrix(MATRIX.replace("warm_ups: false", "warm_ups: true"))
    pattern = re.compile(r"(?:plain|slow)-w\d-e\d-s\d+")
    planned = pattern.findall(workplace.run("plan", "small")[1])
    warm_ups = ["plain-w2-e1-s1000001", "slow-w2-e1-s1000001"]
    assert len(planned) == 6 and [planned[0], planned[3]] == warm_ups
    printed = workplace.run("plan", "small", "--json")[1]
    content = json.loads(printed[printed.index("{\n") :])
    assert fields(content) == documented("plan")
    assert content["matrix"] == "small" and len(content["runs"]) == 6
    assert [run["axes"]["stack"] for run in content["runs"] if run["warm_up"]] == ["plain", "slow"]
    assert all(run["cannot_run"] is None for run in content["runs"])
    planned = pattern.findall(workplace.run("plan", "small", "--only", "slow-*")[1])
    assert planned == [warm_ups[1], "slow-w1-e2-s1", "slow-w2-e2-s1"]
    workplace.forget_calls()
    workplace.behaviour(runs={"slow-w2-e1": {"fails": "log"}})
    status, output = workplace.run("run", "small")
    # A failed warm-up is reported, and the runs that count are made all the same.
    shown = [line.split(" · ") for line in output.splitlines()]
    (failed,) = [cells for cells in shown if cells[-1].startswith("failed")]
    assert status == 0 and failed[0].endswith(" 3") and failed[1].startswith(warm_ups[1])
    ran = [call.removeprefix("run ") for call in workplace.calls() if call.startswith("run ")]
    assert ran == ["plain-w2", "plain-w1", "plain-w2", "slow-w2", "slow-w1", "slow-w2"]
    campaign = open_campaign(workplace.campaigns()[-1])
    figures = figures_of(campaign)
    assert len(figures.counting) == 4 and len(figures.attempts) == 1
    assert not workplace.faults()
    assert workplace.run("report", "small")[0] == 0
    order = dict(common_facts(figures))["Order"]
    assert "warm-up" in order and "no warm-up" not in order
    assert order in (campaign.folder / "report.md").read_text()

    # A failed warm-up is not repeated once the runs it was for are done.
    workplace.forget_calls()
    assert workplace.run("run", "small")[0] == 0
    assert workplace.calls() == ["lock held", "prepare", "lock free"]


def test_retry_makes_only_what_ended_so(workplace: Workplace) -> None:
    status, output = workplace.run("run", "small", "--retry", "failed")
    assert status == 0 and not (workplace.root / "results").exists(), output
    workplace.behaviour(runs={"plain-w1": {"fails": "log"}, "plain-w2": {"fails": "log"}})
    assert workplace.run("run", "small", "--only", "plain-*")[0] == 1
    workplace.behaviour(runs={"plain-w1": {"hangs": True}})
    process = workplace.start("run", "small", "--only", "plain-w1-*")
    workplace.wait_for("hanging")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)

    # Now plain-w1's last attempt was interrupted, plain-w2 failed, and neither run of slow was begun.
    workplace.behaviour()
    workplace.forget_calls()
    status, output = workplace.run("run", "small", "--retry", "failed", "--only", "plain-w1-*")
    assert status == 0 and workplace.calls() == ["lock held", "prepare", "lock free"], output
    assert workplace.run("run", "small", "--retry", "failed")[0] == 0
    assert workplace.calls()[-2:] == ["run plain-w2", "lock free"]
    assert workplace.run("run", "small", "--retry", "failed")[0] == 0
    assert workplace.run("run", "small", "--retry", "interrupted")[0] == 0
    assert sorted(workplace.records()) == [
        "plain-w1/01",
        "plain-w1/02",
        "plain-w1/03",
        "plain-w2/01",
        "plain-w2/02",
    ]
    assert [call for call in workplace.calls() if call.startswith("run")] == ["run plain-w2", "run plain-w1"]

    # After a change there is nothing to retry, and no new campaign is begun instead.
    (workplace.root / "training" / "extra.py").write_text("CHANGED = True\n")
    status, output = workplace.run("run", "small", "--retry", "failed")
    (campaign,) = workplace.campaigns()
    assert status == 2 and campaign.name in output and "training code" in output
    assert workplace.run("run", "small", "--retry", "failed", "--new")[0] == 2


def test_the_plan_tells_the_time_by_earlier_records_and_max_time_is_kept(workplace: Workplace) -> None:
    assert "about" not in workplace.run("plan", "small")[1]
    assert workplace.run("run", "small", "--only", "plain-w1-*")[0] == 0
    *_, estimate, places = workplace.run("plan", "small")[1].splitlines()
    assert re.findall(r"\d+", estimate) == ["5", "3", "4"]  # seconds, and how many of the runs are unknown
    assert places.endswith("those of plain and slow go where the stack puts them.")

    # Even a run without an estimate is not started once no time is left.
    status, output = workplace.run("run", "small", "--max-time", "1e-9")
    assert status == 1 and f"plain-w2-e2-s1-0e872484 {LATE}" in output
    assert list(workplace.records()) == ["plain-w1/01"]
    assert workplace.run("run", "small", "--max-time", "60")[0] == 0
    assert len(workplace.records()) == 4
    status, output = workplace.run("run", "small", "--max-time", "soon")
    assert status == 2 and "'soon'" in output


def test_max_time_learns_from_what_was_made_and_makes_no_warm_up_in_vain(workplace: Workplace) -> None:
    axes = MATRIX.replace("[plain, slow]", "[plain]").replace("workers: [1, 2]", "workers: [1]")
    workplace.matrix(axes.replace("seed: [1]", "seed: [1, 2]").replace("warm_ups: false", "warm_ups: true"))
    workplace.behaviour(runs={"plain-w1-e2": {"takes": 8}})
    status, output = workplace.run("run", "small", "--max-time", str(15 / 60))
    assert status == 1 and re.search(rf"plain-w1-e2-s2-\w+ {LATE}", output)
    # One warm-up and its run; there was time for the next warm-up, but not for the run after it.
    assert workplace.calls() == ["lock held", "prepare", "run plain-w1", "run plain-w1", "lock free"]


def test_max_time_counts_the_preparation_and_the_wait_for_quiet_nodes(workplace: Workplace) -> None:
    workplace.behaviour(prepare_seconds=3)
    status, output = workplace.run("run", "small", "--max-time", str(3 / 60))
    assert status == 1 and LATE in output
    assert workplace.calls() == ["lock held", "prepare", "lock free"]

    workplace.behaviour()
    watched(workplace, BUSY, wait_s=20, otherwise="note")
    workplace.forget_calls()
    status, output = workplace.run("run", "small", "--max-time", str(15 / 60))
    assert status == 1 and LATE in output and "1.4 cores" in output  # it began to wait for quiet nodes
    assert workplace.calls() == ["lock held", "prepare", "lock free"]


def test_a_failed_run_is_recorded_and_does_not_stop_the_others(workplace: Workplace) -> None:
    other_uid = {"uid": 0}
    workplace.behaviour(
        runs={"plain-w1": {"fails": "log"}, "plain-w2": {"fails": "rank"}, "slow-w1": {"rank-0": other_uid}}
    )
    status, output = workplace.run("run", "small")
    assert status == 1
    records = workplace.records()
    assert {name: record.status for name, record in records.items()} == {
        "plain-w1/01": "failed",
        "plain-w2/01": "failed",
        "slow-w1/01": "failed",
        "slow-w2/01": "ok",
    }
    reasons = {name: str(record.reason) for name, record in records.items()}
    launch = records["plain-w1/01"].launch
    assert launch is not None and launch.exit_code == 1
    for token in ("with 1;", "worker1", "ImportError"):
        assert token in reasons["plain-w1/01"]
    for token in ("Rank 1", "worker2", "ValueError", "2 ranks"):
        assert token in reasons["plain-w2/01"]
    assert "as root" in reasons["slow-w1/01"]
    assert reasons["plain-w1/01"] in output and reasons["plain-w2/01"] in output
    assert "logs/worker1.log" in records["plain-w1/01"].files

    # The same command retries what failed, and only that.
    workplace.behaviour()
    workplace.forget_calls()
    assert workplace.run("run", "small")[0] == 0
    assert workplace.calls() == [
        "lock held",
        "prepare",
        "run plain-w1",
        "run plain-w2",
        "run slow-w1",
        "lock free",
    ]
    assert (
        workplace.records()["plain-w1/02"].ok and workplace.records()["plain-w1/01"] == records["plain-w1/01"]
    )


def test_a_disturbed_run_is_made_once_more_in_the_same_command(workplace: Workplace) -> None:
    # By attempt: how often each rank is started.
    workplace.behaviour(runs={"plain-w1": {"starts": [2, 1]}, "slow-w2": {"starts": [2, 2, 1]}})
    status, output = workplace.run("run", "small")
    assert status == 1
    assert [call for call in workplace.calls() if call.startswith(("run", "stop"))] == [
        "run plain-w1",
        "stop",
        "run plain-w1",
        "run plain-w2",
        "run slow-w1",
        "run slow-w2",
        "stop",
        "run slow-w2",
        "stop",
    ]
    statuses = {name: record.status for name, record in workplace.records().items()}
    assert statuses == {
        "plain-w1/01": "disturbed",
        "plain-w1/02": "ok",
        "plain-w2/01": "ok",
        "slow-w1/01": "ok",
        "slow-w2/01": "disturbed",
        "slow-w2/02": "disturbed",
    }
    # In no figure, and listed with its reason.
    (folder,) = workplace.campaigns()
    figures = figures_of(open_campaign(folder))
    assert [missing.run.run_id.partition("-e")[0] for missing in figures.not_run] == ["slow-w2"]
    assert [record.status for record in figures.attempts] == ["disturbed"] * 3
    status, output = workplace.run("run", "small", "--retry", "disturbed")
    assert status == 0, output
    assert workplace.records()["slow-w2/03"].status == "ok"
    status, output = workplace.run("run", "small", "--retry", "disturbed")
    assert status == 0 and "no run was disturbed in its newest attempt" in output


def test_a_run_that_did_something_else_does_not_count(workplace: Workplace) -> None:
    workplace.behaviour(runs={"plain-w2": {"rank-1": {"weights_digest": "other"}}})
    status, _ = workplace.run("run", "small", "--only", "plain-w2-*")
    assert status == 1
    record = workplace.records()["plain-w2/01"]
    assert [rank.weights_digest == record.weights_digest for rank in record.ranks] == [True, False]
    assert "rank 1:" in str(record.reason) and "other" in str(record.reason)
    assert workplace.calls()[-2:] == ["stop", "lock free"]  # nothing is left on the nodes


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_whole_and_the_same_command_goes_on(
    workplace: Workplace, number: signal.Signals, status: int
) -> None:
    workplace.behaviour(runs={"plain-w2": {"hangs": True}}, stop_seconds=0.5)
    process = workplace.start("run", "small")
    workplace.wait_for("hanging")
    worker = int(workplace.wait_for("worker.pid").read_text())
    process.send_signal(number)
    wait_until(lambda: "stop" in workplace.calls())
    process.send_signal(number)  # during the cleanup, which continues
    output, _ = process.communicate(timeout=30)
    assert process.returncode == status, output
    assert "must finish first" in output
    assert not alive(worker)
    assert workplace.calls()[-3:] == ["run plain-w2", "stop", "lock free"]
    record = workplace.records()["plain-w2/01"]
    assert record.status == "interrupted" and number.name in str(record.reason)

    workplace.behaviour()
    workplace.forget_calls()
    code, output = workplace.run("run", "small")
    assert code == 0 and done_already(output) == ["1", "4"]
    assert workplace.calls() == [
        "lock held",
        "prepare",
        "run plain-w2",
        "run slow-w1",
        "run slow-w2",
        "lock free",
    ]
    assert workplace.records()["plain-w2/02"].ok and not workplace.records()["plain-w2/01"].ok
    assert len(workplace.campaigns()) == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", ["report small", "check results", "compare results/small results/small"])
def test_a_signal_ends_what_only_reads(
    workplace: Workplace, command: str, number: signal.Signals, status: int
) -> None:
    folder = workplace.root / "results" / "small" / "20260101T000000Z"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "campaign.json")  # reading it takes as long as this test wants
    process = workplace.start(*command.split())
    writing: list[int] = []

    def is_read() -> bool:
        try:
            writing.append(os.open(folder / "campaign.json", os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            assert error.errno == errno.ENXIO  # it is not being read yet
        return bool(writing)

    try:
        wait_until(is_read)
        # Python handles a signal that arrives just before a blocking read only after that read.
        wait_until(lambda: state(process.pid) == "S")
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == status and "Traceback" not in output
        assert len(output.splitlines()) == 1
    finally:
        process.kill()
        process.wait()
        for descriptor in writing:
            os.close(descriptor)


def test_a_third_signal_gives_up_cleaning_and_says_so(workplace: Workplace) -> None:
    workplace.behaviour(runs={"plain-w1": {"hangs": True}}, stop_seconds=60)
    process = workplace.start("run", "small")
    workplace.wait_for("hanging")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "stop" in workplace.calls())
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "something may still run on the nodes" in output and "lock could not be released" in output
    record = workplace.records()["plain-w1/01"]
    (note,) = record.notes
    assert record.status == "interrupted" and "third signal" in note


def test_a_killed_controller_leaves_nothing_that_the_next_start_does_not_put_right(
    workplace: Workplace,
) -> None:
    workplace.behaviour(runs={"plain-w2": {"hangs": True}})
    process = workplace.start("run", "small")
    workplace.wait_for("hanging")
    worker = int(workplace.wait_for("worker.pid").read_text())
    process.kill()
    process.communicate(timeout=30)
    assert alive(worker)

    workplace.behaviour()
    workplace.forget_calls()
    status, output = workplace.run("run", "small")
    assert status == 0, output
    assert not alive(worker)
    assert TAKEN_OVER.search(output)
    assert workplace.calls() == [
        "lock held",
        "prepare",  # ends what is still running on the nodes
        "run plain-w2",
        "run slow-w1",
        "run slow-w2",
        "lock free",
    ]
    records = workplace.records()
    assert records["plain-w2/01"].status == "interrupted" and records["plain-w2/01"].total_s is None
    assert records["plain-w2/02"].ok
    assert not workplace.faults()


def test_a_killed_controllers_cleaning_up_does_not_go_on_beside_the_next_command(
    workplace: Workplace,
) -> None:
    workplace.behaviour(runs={"plain-w1": {"fails": "log"}}, stop_seconds=60)
    process = workplace.start("run", "small", "--only", "plain-w1-*")
    results = workplace.root / "results"

    def stopping() -> list[Path]:
        found = results.glob("small/*/*/01/stop-vars.json")
        return [path for path in found if processes_with(process_mark(path))]

    workplace.wait_for("calls.jsonl")
    wait_until(lambda: "stop" in workplace.calls())
    process.kill()
    process.communicate(timeout=30)
    assert workplace.records()["plain-w1/01"].status == "failed"  # it has a record, so it is not a leftover
    assert stopping()

    workplace.behaviour()
    status, output = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 0 and output.count("(plain-w1-e2-s1-ad1b6d41)") == 1
    assert not stopping()


def test_what_another_user_left_running_is_not_passed_over(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = workplace.root / "results"
    folder = results / "small" / "20260101T000000Z" / "plain-w1-e2-s1-ad1b6d41" / "01"
    folder.mkdir(parents=True)
    variables = folder / "vars.json"
    variables.write_text("{}")

    def kill_as_a_user(_pid: int, _number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setenv("TRAINBED_ANSIBLE_PLAYBOOK", str(workplace.program))
    playbooks = Playbooks(workplace.root, Interrupts(), Screen())
    mark = process_mark(variables)
    left = subprocess.Popen(["bash", "-c", "sleep 600; :", "bash", mark], process_group=0)
    try:
        wait_until(lambda: left.pid in processes_with(mark))  # a new process shows no arguments at first
        with monkeypatch.context() as patched, pytest.raises(UserError, match=rf"process {left.pid}, maybe"):
            patched.setattr(os, "kill", kill_as_a_user)
            end_orphaned_playbooks(playbooks, results)
        end_orphaned_playbooks(playbooks, results)  # now it may be killed
        assert left.wait(timeout=5) < 0
    finally:
        if left.poll() is None:
            os.killpg(left.pid, signal.SIGKILL)
            left.wait()


def test_what_a_dead_controller_left_is_recorded_though_the_code_has_changed(workplace: Workplace) -> None:
    workplace.behaviour(runs={"plain-w1": {"hangs": True}})
    process = workplace.start("run", "small")
    workplace.wait_for("hanging")
    process.kill()
    process.communicate(timeout=30)
    (workplace.root / "training" / "extra.py").write_text("CHANGED = True\n")
    workplace.behaviour()
    assert workplace.run("run", "small", "--only", "plain-w1-*")[0] == 0
    older, newer = workplace.campaigns()
    (record,) = [read_record(path) for path in older.glob("plain-w1-*/01/record.json")]
    assert record.status == "interrupted" and record.campaign == older.name
    assert [read_record(path).status for path in newer.glob("*/*/record.json")] == ["ok"]


def test_what_is_not_the_same_is_a_new_campaign(workplace: Workplace) -> None:
    only = ("--only", "plain-w1-*")
    assert workplace.run("run", "small", *only)[0] == 0
    (workplace.root / "training" / "extra.py").write_text("CHANGED = True\n")
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and changes(workplace, output) == {"code"}
    (workplace.root / "roles" / "plain" / "vars").mkdir(parents=True)
    (workplace.root / "roles" / "plain" / "vars" / "main.yml").write_text("changed: true\n")
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and changes(workplace, output) == {"launching"}
    workplace.cluster(
        image={"reference": "other", "id": "sha256:other"},
        link={"configured": "1gbit", "measured_mbit": None, "between": []},
    )
    status, output = workplace.run("run", "small", *only)
    assert status == 0 and changes(workplace, output) == {"image", "runs"}
    workplace.matrix(
        (workplace.root / "experiments/matrices/small.yml").read_text().replace("Two stacks", "Both")
    )
    assert workplace.run("run", "small", *only)[0] == 0  # the description does not matter
    assert len(workplace.campaigns()) == 4


def test_what_the_inventory_sets_and_the_order_of_workers_belong_to_a_campaign(workplace: Workplace) -> None:
    def run(settings: dict[str, str], *workers: str) -> str:
        workplace.cluster(settings={name: digit * 64 for name, digit in settings.items()}, workers=workers)
        status, output = workplace.run("run", "small", "--only", "plain-w1-*")
        assert status == 0
        return output

    there = ("worker1", "worker2")
    run({"plain": "1", "slow": "2", "other": "3"}, *there)
    run({"plain": "1", "slow": "2", "other": "4"}, *there)  # not a stack of this matrix
    assert len(workplace.campaigns()) == 1
    assert changes(workplace, run({"plain": "1", "slow": "5"}, *there)) == {"settings"}
    assert len(workplace.campaigns()) == 2
    assert changes(workplace, run({"plain": "1", "slow": "5"}, *reversed(there))) == {"workers"}
    assert len(workplace.campaigns()) == 3


def test_runs_that_would_be_launched_otherwise_are_not_begun(workplace: Workplace) -> None:
    task = workplace.root / "roles" / "plain" / "tasks" / "run.yml"
    task.parent.mkdir(parents=True)
    task.write_text("---\n")
    workplace.behaviour(runs={"plain-w1": {"waits": True}})
    process = workplace.start("run", "small")
    called = workplace.cluster_folder / "calls.jsonl"
    wait_until(lambda: called.exists() and "run plain-w1" in workplace.calls())
    task.write_text("--- # changed\n")
    (workplace.cluster_folder / "go-on").touch()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 2 and "Traceback" not in output
    last = output.splitlines()[-1]
    assert last.startswith("plain-w2-e2-s1-0e872484 ") and "playbooks/run.yml" in last
    assert workplace.calls() == ["lock held", "prepare", "run plain-w1", "lock free"]
    assert list(workplace.records()) == ["plain-w1/01"]

    task.write_text("---\n")
    assert workplace.run("run", "small")[0] == 0 and len(workplace.campaigns()) == 1


def test_a_copy_of_a_campaign_is_not_the_one_that_goes_on(workplace: Workplace) -> None:
    only = ("run", "small", "--only")
    assert workplace.run(*only, "plain-w1-*")[0] == 0
    (campaign,) = workplace.campaigns()
    copy = campaign.with_name(f"{campaign.name}.bak")
    shutil.copytree(campaign, copy)
    assert workplace.run(*only, "plain-w2-*")[0] == 0
    assert workplace.campaigns() == [campaign] and len(workplace.records()) == 2
    assert len(list(copy.glob("*/*/record.json"))) == 1

    # Nor is one whose name could be a campaign's.
    later = copy.rename(campaign.with_name("20991231T235959Z"))
    status, output = workplace.run("run", "small")
    assert status == 2 and str(later) in output and f" {campaign.name}:" in output
    assert len(list(later.glob("*/*/record.json"))) == 1


def test_what_cannot_be_run_is_a_row_with_its_reason(workplace: Workplace) -> None:
    missing = "its packages can't be had here"
    workplace.cluster(stacks=["plain"], stacks_missing={"slow": missing}, workers=["worker1"])
    status, planned = workplace.run("plan", "small")
    assert status == 0
    assert workplace.calls() == ["lock held", "prepare", "lock free"] and not workplace.campaigns()
    status, output = workplace.run("run", "small")
    assert status == 0
    assert list(workplace.records()) == ["plain-w1/01"]
    campaign = open_campaign(workplace.campaigns()[-1])
    reasons = [run.cannot_run for run in campaign.file.plan]
    shown = [
        str(reason) for reason in reasons if reason is not None and reason in planned and reason in output
    ]
    assert reasons == [None, *shown] and len(shown) == 3
    assert re.findall(r"\d+", shown[0]) == ["2", "1"]  # the workers that it takes, and those that there are
    assert missing in shown[1] and missing in shown[2]
    write_report(campaign)
    report = (campaign.folder / "report.md").read_text()
    assert report.count(missing) == 2 and "| slow | 2 | 0 of 1 |" in report
    assert not workplace.faults()


def test_a_campaign_goes_on_when_the_cluster_is_set_to_what_was_lacking(workplace: Workplace) -> None:
    text = MATRIX.replace("stack: [plain, slow]", "stack: [plain]").replace("workers: [1, 2]", "workers: [1]")
    axis = "  seed: [1]\n  link_rate: [null, 1gbit]"
    workplace.matrix(text.replace("  seed: [1]", axis).replace("warm_ups: false", "warm_ups: true"))
    status, output = workplace.run("run", "small")
    plan = open_campaign(workplace.campaigns()[-1]).file.measured
    refused = {run.specification.conditions.link_rate: run.cannot_run for run in plan if run.cannot_run}
    assert status == 0 and list(refused) == ["1gbit"]
    assert "1gbit" in refused["1gbit"] and refused["1gbit"] in output
    workplace.cluster(link={"configured": "1gbit", "measured_mbit": 940.0, "between": []})
    status, output = workplace.run("run", "small")
    assert status == 0, output
    (campaign,) = workplace.campaigns()
    figures = figures_of(open_campaign(campaign))
    assert {record.specification.conditions.link_rate for record in figures.counting} == {None, "1gbit"}
    assert figures.not_run == [] and not workplace.faults()
    assert len(list(campaign.glob("*/01/record.json"))) == 4  # two of them warm-ups
    assert workplace.run("report", "small")[0] == 0


def test_a_lock_that_is_held_stops_it_with_what_ansible_said(workplace: Workplace) -> None:
    held = "The cluster is in use: 'provision' by ada has held its lock since noon."
    workplace.behaviour(lock_held=held)
    status, output = workplace.run("run", "small")
    assert status == 2
    assert f"master: {held}" in output
    assert workplace.calls() == ["lock held"]


def test_a_failed_preparation_is_shown_and_its_log_kept(workplace: Workplace) -> None:
    fails = "The data set is not in the store."
    workplace.behaviour(prepare_fails=fails)
    status, output = workplace.run("run", "small")
    assert status == 2 and fails in output
    assert workplace.calls() == ["lock held", "prepare", "lock free"]
    (log,) = (workplace.root / "results").glob(".prepare-*/prepare.log")
    assert str(log) in output


def test_a_damaged_record_is_named(workplace: Workplace) -> None:
    workplace.run("run", "small", "--only", "plain-w1-*")
    (path,) = workplace.campaigns()[-1].glob("*/*/record.json")
    path.write_text(path.read_text().replace('"ok"', '"fine"'))
    status, output = workplace.run("run", "small")
    with pytest.raises(UserError, match=rf"{re.escape(str(path))}.*: status:") as invalid:
        read_record(path)
    assert status == 2 and str(invalid.value) in output and "Traceback" not in output
    assert workplace.faults()[0] == str(invalid.value)
    path.write_text("{")
    status, output = workplace.run("report", "small")
    assert status == 2 and f"The record {path} is damaged" in output

    # Following its advice works.
    assert "Move this file away, not its folder" in output
    path.rename(workplace.root / "damaged.json")
    assert workplace.run("run", "small", "--only", "plain-w1-*")[0] == 0
    assert [record.status for record in workplace.records().values()] == ["interrupted", "ok"]


def test_a_run_that_goes_on_is_told_from_one_whose_controller_died(workplace: Workplace) -> None:
    assert workplace.run("run", "small", "--only", "plain-w1-*")[0] == 0
    campaign = open_campaign(workplace.campaigns()[-1])
    attempt = campaign.new_attempt(campaign.file.plan[1].run_id)
    attempt.begin(utc_now())  # by this process, which is alive
    assert not attempt.abandoned
    running = f"{attempt.folder} has no record: it is running."
    assert workplace.faults()[0] == running
    (attempt.folder / STARTED).unlink()
    left_behind = workplace.faults()[0]
    assert attempt.abandoned and left_behind != running and left_behind.startswith(f"{attempt.folder} ")


def test_a_reader_who_goes_away_does_not_stop_it(workplace: Workplace) -> None:
    process = workplace.start("run", "small")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert len(workplace.records()) == 4


def test_there_is_no_ansible_playbook(workplace: Workplace) -> None:
    workplace.program.unlink()
    status, output = workplace.run("run", "small")
    assert status == 2 and "ansible-playbook" in output and PROGRAM_VARIABLE in output
    assert not (workplace.root / "results").exists()
