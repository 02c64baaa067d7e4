"""Concurrent runs, as users or side by side: the real command against a stand-in, and its tables."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.figures import figures_of
from experiments.analysis.users import occasions
from experiments.campaign.campaign import open_campaign
from experiments.campaign.concurrent import WAITS_S, Group
from experiments.campaign.estimates import Estimates
from experiments.campaign.resume import Deadline
from experiments.matrix.loading import load_matrix
from experiments.records.record import Record, read_record
from experiments.report.export_rows import export_rows
from experiments.report.sections.users import company_sentences
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from tests.unit.experiments.campaign.test_loop import alive
from tests.unit.experiments.made_up_records import STARTED, campaign, planned, record
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace
from tests.unit.experiments.report.drawn import tables

USERS = MATRIX.replace("seed: [1]\norder", "seed: [1, 2, 3]\ntogether: [[1, 2]]\norder")
FIRST, SECOND = "plain-w1-e2-s1", "plain-w1-e2-s2"
MEET = {"meets": 1}


def records(workplace: Workplace) -> dict[str, Record]:
    """The records of the newest campaign: `plain-w1-e2-s1/01`."""
    paths = sorted(workplace.campaigns()[-1].glob("*/*/record.json"))
    return {f"{path.parts[-3].rpartition('-')[0]}/{path.parts[-2]}": read_record(path) for path in paths}


def told(workplace: Workplace) -> dict[str, dict[str, Any]]:
    """What each run was told about those beside it."""
    calls = map(json.loads, (workplace.cluster_folder / "calls.jsonl").read_text().splitlines())
    return {call["run"].rpartition("-")[0]: call["told"] for call in calls if call["run"]}


def test_users_begin_at_once_and_are_recorded_reported_and_checked(workplace: Workplace) -> None:
    workplace.matrix(USERS.replace("stack: [plain, slow]", "stack: [plain]"))
    workplace.behaviour(runs={FIRST: MEET, SECOND: MEET})  # neither ends before the other has begun
    planned_row = next(
        line for line in workplace.run("plan", "small")[1].splitlines() if f" {FIRST}-" in line
    )
    assert f" {SECOND}-" in planned_row
    workplace.forget_calls()
    status, output = workplace.run("run", "small")
    assert status == 0, output
    runs = ["stop", "run plain-w1", "run plain-w1", "stop", "run plain-w2", "run plain-w2"]
    assert workplace.calls() == [
        "lock held", "prepare", *runs, "run plain-w1", "run plain-w2", "lock free",
    ]  # fmt: skip
    assert "runs 1 to 2 of 6 · " in output and "run 5 of 6 · " in output
    beside = {"run_concurrently": True, "run_waits_s": WAITS_S}
    assert told(workplace)[FIRST] == beside | {"run_place": 0}
    assert told(workplace)[SECOND] == beside | {"run_place": 1}
    assert told(workplace)["plain-w1-e2-s3"] == {}
    found = records(workplace)
    first, second = (found[f"{run}/01"].together for run in (FIRST, SECOND))
    assert first is not None and second is not None and found["plain-w1-e2-s3/01"].together is None
    assert (first.why, first.place, second.place) == ("users", 0, 1)
    assert first.begun == second.begun and first.runs == second.runs
    assert not workplace.faults()

    workplace.forget_calls()
    assert workplace.run("run", "small")[0] == 0
    assert workplace.calls() == ["lock held", "prepare", "lock free"]
    assert workplace.run("report", "small")[0] == 0
    report = (workplace.campaigns()[-1] / "report.md").read_text()
    assert "## Two users at once\n" in report and "4 runs began at once, as users of one cluster" in report
    assert "| plain | 1 | [1 of 1](#records) | 10.0 |" in report  # only the run that was alone
    # Estimates come only from runs that were alone.
    estimates = Estimates(workplace.root / "results", {})
    assert estimates.of(found[f"{FIRST}/01"].specification) == found["plain-w1-e2-s3/01"].total_s


def test_users_are_planned_behind_one_another_and_after_their_warm_up(workplace: Workplace) -> None:
    workplace.matrix(USERS.replace("warm_ups: false", "warm_ups: true").replace("written", "random"))
    workplace.cluster(workers=["worker1"])
    status, output = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 0, output
    plan = open_campaign(workplace.campaigns()[-1]).file.plan
    assert sum(run.warm_up for run in plan) == 4  # two stacks, in the users' block and in the other one
    for at, run in enumerate(plan):
        if run.together[:1] == [run.run_id]:
            assert [each.run_id for each in plan[at : at + 2]] == run.together and run.block == 1
        assert not (run.warm_up and run.together)
        assert ("takes 2 workers" in str(run.cannot_run)) == (run.specification.work.workers == 2)
    ran = [run for run in records(workplace) if "-s1000" not in run]
    assert ran == [f"plain-w1-e2-s{seed}/01" for seed in (1, 2, 3)]


def test_where_one_user_fails_the_other_ends_and_both_are_made_anew(workplace: Workplace) -> None:
    workplace.matrix(USERS)
    workplace.behaviour(runs={FIRST: {"fails": "log"} | MEET, SECOND: MEET})
    status, output = workplace.run("run", "small", "--only", "plain-w1-e2-s2-*")
    assert status == 1 and "no module named torch" in output
    assert {name: each.status for name, each in records(workplace).items()} == {
        f"{FIRST}/01": "failed",
        f"{SECOND}/01": "ok",
    }
    assert workplace.calls()[-2:] == ["stop", "lock free"]
    not_run = figures_of(open_campaign(workplace.campaigns()[-1])).not_run
    assert "others" in {missing.reason for missing in not_run}

    workplace.behaviour()
    assert workplace.run("run", "small", "--retry", "failed")[0] == 0
    found = records(workplace)
    assert found[f"{FIRST}/02"].ok and found[f"{SECOND}/02"].ok and len(found) == 4
    workplace.forget_calls()
    assert workplace.run("run", "small", "--only", "plain-w1-e2-s1-*")[0] == 0
    assert workplace.calls() == ["lock held", "prepare", "lock free"]


def test_a_signal_ends_all_that_began_at_once(workplace: Workplace) -> None:
    workplace.matrix(USERS)
    workplace.behaviour(runs={FIRST: MEET | {"waits": True}, SECOND: MEET | {"hangs": True}})
    process = workplace.start("run", "small", "--only", "plain-w1-e2-s1-*")
    workplace.wait_for("hanging")
    worker = int(workplace.wait_for("worker.pid").read_text())
    workplace.forget_calls()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert not alive(worker)
    assert workplace.calls() == ["stop", "lock free"]
    found = records(workplace)
    assert list(found) == [f"{FIRST}/01", f"{SECOND}/01"]
    for each in found.values():
        assert each.status == "interrupted" and "SIGINT" in str(each.reason) and each.together is not None
    workplace.behaviour()
    assert workplace.run("run", "small", "--only", "plain-w1-e2-s1-*")[0] == 0
    assert {name for name, each in records(workplace).items() if each.ok} == {f"{FIRST}/02", f"{SECOND}/02"}


def test_a_killed_controller_leaves_several_runs_and_all_are_put_right(workplace: Workplace) -> None:
    workplace.matrix(USERS)
    workplace.behaviour(runs={FIRST: MEET | {"waits": True}, SECOND: MEET | {"hangs": True}})
    process = workplace.start("run", "small")
    workplace.wait_for("hanging")
    worker = int(workplace.wait_for("worker.pid").read_text())
    process.kill()
    process.communicate(timeout=30)
    workplace.behaviour()
    status, output = workplace.run("run", "small")
    assert status == 0, output
    assert not alive(worker) and output.count("Ended a playbook that a killed controller had left") == 2
    found = records(workplace)
    for run, place in ((FIRST, 0), (SECOND, 1)):
        lost = found[f"{run}/01"]
        assert lost.status == "interrupted" and lost.together is not None and lost.together.place == place
        assert found[f"{run}/02"].ok
    assert not workplace.faults()


def test_nothing_begins_at_once_on_nodes_that_could_not_be_cleared(workplace: Workplace) -> None:
    workplace.matrix(USERS)
    workplace.behaviour(stop_fails="The node is away.")
    status, _ = workplace.run("run", "small", "--only", "plain-w1-e2-s1-*")
    assert status == 1 and not [call for call in workplace.calls() if call.startswith("run ")]
    found = records(workplace)
    assert [each.status for each in found.values()] == ["failed", "failed"]
    reason = "Ending what ran on the nodes failed: master: The node is away."
    assert {each.reason for each in found.values()} == {reason}


def test_side_by_side_are_runs_of_one_worker_and_no_others(workplace: Workplace) -> None:
    workplace.matrix(MATRIX.replace("epochs: [2]", "epochs: [1, 2]"))
    meeting = {f"{stack}-w1-e{epochs}": MEET for stack in ("plain",) for epochs in (1, 2)}
    workplace.behaviour(runs=meeting)
    status, output = workplace.run("run", "small", "--side-by-side")
    assert status == 0, output
    assert workplace.calls() == [
        "lock held", "prepare", "stop", "run plain-w1", "run plain-w1", "run plain-w2", "run plain-w2",
        "stop", "run slow-w1", "run slow-w1", "run slow-w2", "run slow-w2", "lock free",
    ]  # fmt: skip
    # No role says that the plan may choose the workers, so no playbook is told any.
    beside = {"run_concurrently": True, "run_place": 1}
    assert told(workplace)["plain-w1-e2-s1"] == beside and told(workplace)["plain-w2-e1-s1"] == {}
    for name, each in records(workplace).items():
        assert (each.together is not None) == ("-w1-" in name)
        assert each.together is None or each.together.why == "side by side"
    assert not workplace.faults()
    figures = figures_of(open_campaign(workplace.campaigns()[-1]))
    assert "4 of 8 runs were made side by side with others" in company_sentences(figures, 0)[0]
    assert all(len(cell.records) == 1 for cell in figures.cells)


def test_the_time_of_runs_side_by_side_is_the_longest_ones_and_of_users_the_sum(tmp_path: Path) -> None:
    runs = [planned("ddp", 1, seed) for seed in (1, 2)]
    deadline = Deadline(15.0, time.monotonic(), tmp_path, {})
    users, beside = Group(runs, "users"), Group(runs, "side by side")
    assert deadline.allows(users, users)  # no duration is known yet
    deadline.learn([record("ddp", 1, 8.0, 10.0)])
    assert deadline.allows(beside) and not deadline.allows(users) and not deadline.allows(beside, beside)
    assert Deadline(None, time.monotonic(), tmp_path, {}).allows(users, users)


def test_side_by_side_where_there_is_nothing_to_put_there(workplace: Workplace) -> None:
    assert workplace.run("run", "small", "--side-by-side")[0] == 0
    workplace.matrix(MATRIX.replace("epochs: [2]", "epochs: [1, 2]").replace("[1, 2]", "[1]", 1))
    workplace.cluster(workers=["worker1"])
    assert workplace.run("run", "small", "--side-by-side")[0] == 0
    assert all(each.together is None for each in records(workplace).values())
    assert "stop" not in workplace.calls()


@pytest.mark.parametrize(
    ("together", "said"),
    [
        ("[[1]]", "line 10: .*two seeds"),
        ("[[1, 2], [2, 3]]", "line 10: the seed 2 is listed twice"),
        ("[[1, 4]]", "line 10: no run of the matrix has the seed 4"),
        ("[[1, 9]]\nrows: [{stack: plain, workers: 2, epochs: 9, seed: 9}]", "do not have the same runs"),
    ],
)
def test_seeds_that_cannot_begin_at_once(tmp_path: Path, together: str, said: str) -> None:
    path = tmp_path / "small.yml"
    path.write_text(USERS.replace("[[1, 2]]", together).lstrip(), encoding="utf-8")
    with pytest.raises(UserError, match=said):
        load_matrix(str(path))


def test_a_matrix_without_users_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "small.yml"
    path.write_text(MATRIX, encoding="utf-8")
    assert load_matrix(str(path)).content()["together"] == []
    path.write_text(USERS, encoding="utf-8")
    assert load_matrix(str(path)).content()["together"] == [[1, 2]]
    assert load_matrix("two-users").together == [[1, 2]]


def made(stack: str, seed: int, started: float, ended: float, queue: float, at_once: bool) -> Record:
    """A record with this launch; its ranks are up 1 s after the queue, and shutdown takes 2 s."""
    ids = [planned(stack, 2, number).run_id for number in (1, 2)]
    together = {"why": "users", "runs": ids, "place": seed - 1, "begun": STARTED} if at_once else None
    whole = record(stack, 2, 10.0, ended - started + 5, seed)
    phases = dict.fromkeys(whole.phases or {}, 0.0) | {"queue": queue, "launch": 1.0, "shutdown": 2.0}
    phases["other"] = ended - started + 5 - sum(phases.values())
    launch = {"stack": stack, "started": started, "ended": ended, "exit_code": 0}
    return record(
        stack, 2, 10.0, ended - started + 5, seed,
        phases=phases, together=together, launch=launch | {"command": ["launch"], "nodes": []},
    )  # fmt: skip


def test_the_tables_of_users(tmp_path: Path) -> None:
    plan = [planned(stack, 2, seed) for stack in ("ddp", "spark") for seed in (1, 2, 3)]
    plan = [
        run.model_copy(update={"together": [other.run_id for other in plan[at // 3 * 3 :][:2]]})
        if at % 3 < 2
        else run
        for at, run in enumerate(plan)
    ]
    shared = [made("ddp", 1, 100, 130, 0, True), made("ddp", 2, 101, 132, 0, True)]
    turns = [made("spark", 1, 200, 220, 0, True), made("spark", 2, 201, 241, 20, True)]
    alone = [made("ddp", 3, 300, 320, 0, False), made("spark", 3, 400, 420, 0, False)]
    there = campaign(tmp_path, plan, [*shared, *turns, *alone])
    figures = figures_of(there)
    assert [len(cell.records) for cell in figures.cells] == [1, 1]

    by_stack = {each.cell.stack: each for each in occasions(figures)[0]}
    ddp, spark = by_stack["ddp"], by_stack["spark"]
    assert [user.slowdown for user in ddp.users] == [1.5, 1.55] and ddp.in_turn is None
    assert ddp.overlap_s == 128 - 102 and ddp.makespan_s == 32 and ddp.in_turn_s == 40
    assert [user.slowdown for user in spark.users] == [1.0, 2.0]
    assert spark.fairness == pytest.approx(9 / 10) and spark.overlap_s == 0
    assert [user.seed for user in spark.in_turn or []] == [1, 2]
    assert [user.waited_s for user in spark.users] == [1.0, 21.0]

    shown = tables(there)
    assert shown["Two users at once"].texts[3] == [
        "spark",
        "2",
        "2",
        "2",
        "20.0",
        "40.0",
        "2.00",
        "1.0",
        "21.0",
        "1",
        "worker1, worker2",
    ]
    whole = shown["Two users at once: fairness"]
    assert whole.texts[1] == ["spark", "2", "2", "2", "0.900", "41.0", "40.0", "1.02", "0.0"]
    assert whole.after[0].startswith(
        "ddp, 2 workers each, 2 epochs: they trained at the same time for 26.0 s (96 % of the shortest "
        "training), on the same nodes, and took 1.50 and 1.55 times"
    )
    assert "they took turns. The user with seed 2 trained last and waited 21.0 s" in whole.after[1]
    exported = {
        (row.get("stack"), row.get("setting"), row["quantity"]): row for row in export_rows(analyse(there))
    }
    assert exported["spark", "seeds 1, 2", "fairness"]["value"] == pytest.approx(0.9)
    assert exported["ddp", "seed 2 of 1, 2", "slowdown"]["value"] == 1.55
    ids = {run.axes["seed"]: run.run_id for run in there.file.plan if run.axes["stack"] == "ddp"}
    assert exported["ddp", "seed 2 of 1, 2", "slowdown"]["run_ids"] == ids[2]
    assert exported["ddp", "seed 2 of 1, 2", "took_s alone"]["run_ids"] == ids[3]
    assert exported["ddp", "seeds 1, 2", "fairness"]["run_ids"] == f"{ids[1]} {ids[2]}"
    (users,) = [row for row in shown["Records"].cells if row[0].value == "ddp, users at once"]
    assert users[3].links == tuple((str(seed), f"{ids[seed]}/01/record.json") for seed in (1, 2))
    write_report(there)
    first = (there.folder / "report.html").read_bytes()
    write_report(there)
    assert (there.folder / "report.html").read_bytes() == first and b"Two users at once" in first


def test_users_without_anybody_alone_are_named(tmp_path: Path) -> None:
    plan = [planned("ddp", 2, seed) for seed in (1, 2)]
    ids = [run.run_id for run in plan]
    plan = [run.model_copy(update={"together": ids}) for run in plan]
    there = campaign(tmp_path, plan, [made("ddp", 1, 0, 30, 0, True), made("ddp", 2, 0, 30, 0, True)])
    assert occasions(figures_of(there)) == ([], 1)
    assert "1 such occasion can't be compared with anything" in company_sentences(figures_of(there), 1)[1]
    write_report(there)
