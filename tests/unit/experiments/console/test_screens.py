"""The screens of a plan, a campaign and a running campaign, each compared whole with a kept one."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.campaign.attempt import Attempt
from experiments.campaign.campaign import Campaign
from experiments.campaign.estimates import Estimates
from experiments.campaign.plan import PlannedRun
from experiments.campaign.running_note import CommandNote
from experiments.console.observe import Observer
from experiments.console.tables import show_campaign, show_plan, show_work
from experiments.console.watch import LinePrinter
from experiments.console.watch_view import picture
from experiments.util.screen import Screen
from tests.unit.experiments.made_up_records import ENVIRONMENT, STARTED, campaign, planned, record

WORKERS = {name: ENVIRONMENT.nodes[name] for name in ENVIRONMENT.workers}
SCREENS = Path(__file__).resolve().parents[3] / "data" / "screens"


def kept(name: str) -> str:
    return (SCREENS / name).read_text(encoding="utf-8")


@pytest.fixture
def plan() -> list[PlannedRun]:
    runs = [planned(stack, workers) for stack in ("ddp", "spark") for workers in (1, 2)]
    warm_up = planned("ddp", 2, 1_000_001).model_copy(update={"warm_up": True})
    users = [planned("ddp", 1, seed) for seed in (2, 3)]
    ids = [run.run_id for run in users]
    missing = planned("determined", 1, cannot_run="determined is not on this cluster: not provisioned.")
    return [warm_up, *runs, *(run.model_copy(update={"together": ids}) for run in users), missing]


@pytest.fixture
def made(tmp_path: Path, plan: list[PlannedRun]) -> Campaign:
    failed: dict[str, Any] = {"status": "failed", "reason": "Rank 1 on worker2: ValueError: no such review."}
    failed |= dict.fromkeys(("slowest_rank", "phases", "weights_digest", "validation_correct"))
    return campaign(
        tmp_path,
        plan,
        [
            record("ddp", 2, 10.0, 31.5, seed=1_000_001),
            record("ddp", 1, 60.0, 80.0),
            record("ddp", 2, 30.0, 50.0, **failed),
            record("ddp", 2, 31.0, 51.0, attempt=2),
        ],
    )


def test_the_plan(made: Campaign, plan: list[PlannedRun], capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(Screen(), plan, "made", Estimates(made.folder.parent.parent, {}), WORKERS)

    assert capsys.readouterr().out == kept("plan.txt")


def test_below_the_plan_is_how_workers_differ_and_which_cores_no_run_uses(
    made: Campaign, plan: list[PlannedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    unlike = WORKERS["worker1"].model_copy(update={"cores": 3, "memory_mb": 8000})
    show_plan(Screen(), plan, "made", Estimates(made.folder.parent.parent, {}), WORKERS | {"worker1": unlike})

    *_, differ, spare = capsys.readouterr().out.splitlines()
    assert differ == (
        "The workers differ in cores (worker1 3, worker2 1) and memory (worker1 7.8 GiB, worker2 23.5 GiB); "
        "the slowest sets the pace of a run."
    )
    assert spare == (
        "Cores that no run uses: 2 of worker1 (a run uses 1 of each worker; worker_threads sets it)."
    )


def test_below_the_plan_is_which_runs_are_the_same_here(
    made: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(conditions: dict[str, Any], cores: int, **also: Any) -> list[str]:
        run = planned("ddp", 2)
        changed = run.specification.conditions.model_copy(update=conditions)
        update = {"specification": run.specification.model_copy(update={"conditions": changed})}
        run = run.model_copy(update=update | {"axes": run.axes | conditions, "also": [run.axes | also]})
        workers = {name: node.model_copy(update={"cores": cores}) for name, node in WORKERS.items()}
        show_plan(Screen(), [run, run], "made", Estimates(made.folder.parent.parent, {}), workers)
        lines = capsys.readouterr().out.splitlines()
        return [line for line in lines if "same" in line or "tokenizer" in line]

    assert told({"threads": 1}, 1, threads="cluster") == [
        "The same on this cluster, so each is made once: 2 runs with threads 1 and threads cluster."
    ]
    assert told({"threads": 1}, 1, threads=1) == []
    one_core = (
        "Every worker has one core, so tokenizer_threads all is one thread here, as is one: their runs "
        "are made, and differ in name alone."
    )
    all_threads = {"tokenizer_threads": "all"}
    assert told(all_threads, 1, **all_threads) == [one_core]
    assert told(all_threads, 2, **all_threads) == []


def test_a_campaign(made: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    show_work(screen, made)
    show_campaign(screen, made)

    assert capsys.readouterr().out.replace(str(made.folder), "results/made/ID") == kept("run.txt")


def test_a_running_campaign(made: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    plan = made.file.plan
    note = CommandNote(
        matrix="made",
        started=STARTED,
        controller={},
        campaign=made.file.name,
        selected=[run.run_id for run in plan if run.cannot_run is None and not run.warm_up],
        not_runnable=[run.run_id for run in plan if run.cannot_run is not None],
        todo=[run.run_id for run in plan if run.cannot_run is None],
    )
    for run in plan:
        for attempt in made.attempts(run.run_id):
            attempt.begin(STARTED)
    attempt = made.new_attempt(plan[3].run_id)
    attempt.begin(STARTED + timedelta(hours=1))
    tell(attempt)
    observer = Observer(made, note, Estimates(made.folder.parent.parent, {}))

    lines = LinePrinter(Screen())
    lines.show("made · campaign ID", observer, observer.look(), "")
    terminal = Console(file=io.StringIO(), width=110, highlight=False)
    terminal.print(picture("made · campaign ID", observer, observer.look(), ""))
    assert isinstance(terminal.file, io.StringIO)
    drawn = "\n".join(line.rstrip() for line in terminal.file.getvalue().splitlines())

    assert f"{capsys.readouterr().out}\n{drawn}\n" == kept("watch.txt")


def tell(attempt: Attempt) -> None:
    """Writes the progress of a running attempt: half of the first of two epochs, in 30 s."""
    ranks = [
        {"rank": 0, "host": "worker1", "epoch": 1, "step": 50, "loss": 0.61, "samples_per_s": 105.0,
         "memory_mb": 300, "phase": "exposed_sync", "silent_s": 0.0},
        {"rank": 1, "host": "worker2", "epoch": 1, "step": 49, "loss": None, "samples_per_s": 104.0,
         "memory_mb": 301, "phase": "forward", "silent_s": 7.0},
    ]  # fmt: skip
    events = [
        {"event": "start", "time": 1000.0, "steps_per_epoch": 100},
        {"event": "step", "time": 1030.0, "epoch": 1, "step": 50, "loss": 0.61, "samples_per_s": 209.0,
         "ranks": ranks},
        {"event": "error", "time": 1030.0, "message": "The disk is full."},
    ]  # fmt: skip
    attempt.live.write_text("".join(json.dumps(event) + "\n" for event in events))
