"""Where ranks ran, who put them there, and in which pairs stacks were on the same nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.analysis.analysis import analyse
from experiments.analysis.placements import placements
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.report.sections.launch import launch_table
from tests.unit.experiments import made_up_records as made_up

CENSUS = {"processor": {"model": "fast"}}


def on(stack: str, seed: int, *nodes: str, **changes: Any) -> Record:
    """The record of a run with its ranks on these nodes."""
    whole = made_up.record(stack, len(nodes), 50.0, 60.0, seed, **changes)
    ranks = [
        rank.model_copy(update={"node": node, "census": CENSUS})
        for rank, node in zip(whole.ranks, nodes, strict=True)
    ]
    return whole.model_copy(update={"ranks": ranks})


def planned(record: Record, nodes: list[str] | None) -> PlannedRun:
    """Its row of the plan, which gives it these nodes."""
    work = record.specification.work
    run = made_up.planned(record.specification.stack, work.workers, work.seed)
    return run.model_copy(update={"nodes": nodes})


def said(folder: Path, rows: list[tuple[Record, list[str] | None]]) -> list[str]:
    """The lines below the launches' differences."""
    plan = [planned(record, nodes) for record, nodes in rows]
    analysis = analyse(made_up.campaign(folder, plan, [record for record, _ in rows]))
    return launch_table(analysis.launches, analysis.placements).after


def test_a_line_for_each_stack_says_where_its_ranks_ran(tmp_path: Path) -> None:
    records = [
        on("ddp", 1, "worker1", "worker2"),
        on("ddp", 2, "worker1", "worker2"),
        on("spark", 1, "master", "worker1"),
        on("spark", 2, "worker2", "worker2"),
        on("determined", 1, "master", "master"),
        on("determined", 2, "worker1", "worker2", standin="It is a toy."),
    ]
    assert said(tmp_path, [(record, None) for record in records]) == [
        "ddp, 2 runs: ranks on worker1 and worker2, never on the master; no two of a run on one node.",
        "spark, 2 runs: ranks on master, worker1 and worker2, in 1 of these runs also on the master, beside "
        "the stacks' services; 1 to 2 of a run on each of its nodes.",
        "determined, 1 run: ranks on master, in every run also on the master, beside the stacks' services; "
        "2 of a run on each of its nodes.",
        "Ranks on the same nodes as ddp's: those of spark in 0 of 2 pairs, and rank 0 in 0; those of "
        "determined in 0 of 1 pair, and rank 0 in 0.",
    ]


def test_where_the_commands_ran_is_said(tmp_path: Path) -> None:
    records = [on("ddp", 1, "worker1"), on("spark", 1, "worker1"), on("spark", 2, "master")]
    hosts = [["worker1"], ["master"], ["master"]]
    for at, names in enumerate(hosts):
        launch = records[at].launch
        assert launch is not None
        records[at] = records[at].model_copy(update={"launch": launch.model_copy(update={"hosts": names})})
    assert said(tmp_path, [(record, None) for record in records])[2] == (
        "The commands that started them ran: ddp's on worker1, beside ranks of the same run in 1 of 1 run; "
        "spark's on master, beside ranks of the same run in 1 of 2 runs."
    )


def test_turns_and_free_choice_are_told_apart_and_pairs_counted(tmp_path: Path) -> None:
    both = ["worker1", "worker2"]
    rows: list[tuple[Record, list[str] | None]] = [
        (on("ddp", 1, "worker1"), ["worker1"]),
        (on("ddp", 2, "worker2"), ["worker2"]),
        (on("ddp", 3, "worker1"), ["worker1"]),
        (on("ddp", 4, *both), both),
        (on("spark", 1, "worker1"), []),
        (on("spark", 2, "worker1"), []),
        (on("spark", 3, "worker1"), []),
        (on("spark", 4, "worker2", "worker1"), []),
    ]
    assert said(tmp_path, rows)[2:] == [
        "Of the runs on fewer than all workers, those of ddp took turns over the workers, by the plan "
        "(worker1 in 2 and worker2 in 1); those of spark went where it put them (worker1 in 3).",
        "Ranks on the same nodes as ddp's: those of spark in 3 of 4 pairs, and rank 0 in 2.",
    ]


def test_a_plan_without_turns_is_not_said_to_have_them(tmp_path: Path) -> None:
    rows: list[tuple[Record, list[str] | None]] = [
        (on(stack, seed, "worker1"), ["worker1"]) for stack in ("ddp", "spark") for seed in (1, 2)
    ]
    assert said(tmp_path, rows)[2] == (
        "Of the runs on fewer than all workers, those of ddp took no turns, by the plan (worker1 in 2); "
        "those of spark took no turns, by the plan (worker1 in 2)."
    )


def test_users_who_begin_at_once_are_in_no_pair(tmp_path: Path) -> None:
    records = [on(stack, seed, "worker1") for stack in ("ddp", "spark") for seed in (1, 2, 3)]
    plan = [planned(record, []) for record in records]
    ids = [run.run_id for run in plan[3:5]]
    moment = {"why": "users", "runs": ids, "begun": made_up.STARTED}
    for at, run_id in enumerate(ids):
        plan[3 + at] = plan[3 + at].model_copy(update={"together": ids})
        records[3 + at] = on("spark", at + 1, "worker1", together=moment | {"place": at})
        assert records[3 + at].run_id == run_id
    ddp, spark = placements(analyse(made_up.campaign(tmp_path, plan, records)).figures)
    assert (ddp.by, ddp.pairs) == ("stack", 0) and (spark.runs, spark.pairs, spark.same_nodes) == (3, 1, 1)
