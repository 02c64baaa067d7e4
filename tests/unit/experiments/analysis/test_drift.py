"""Drift over a campaign: the trend, boots and later commands, on made-up runs."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.drift import LEAST, Boot, Drift, drift, trend
from experiments.analysis.figures import figures_of
from experiments.campaign.campaign import Campaign
from experiments.report.export_rows import export_rows
from experiments.report.plots import plots_of
from experiments.report.sections.conclusions import conclusions
from experiments.report.sections.drift import drift_sentences
from experiments.report.writer import SHOWN, write_report
from tests.unit.experiments.made_up_records import STARTED, campaign, planned, record

STACKS = {"ddp": 30.0, "spark": 40.0}


def made(folder: Path, an_hour: float, seeds: int = 6, **others: Mapping[int, Any]) -> Campaign:
    """A run every half hour, on either stack in turn: train_s changes by `an_hour`.

    It also varies by a thousandth. `others` changes records: a field's values by the run's place in the
    order of time.
    """
    chance, plan, records = random.Random(1), [], []
    order = [(stack, seed) for seed in range(1, seeds + 1) for stack in STACKS]
    for at, (stack, seed) in enumerate(order):
        hours = at / 2
        train_s = STACKS[stack] * (1 + an_hour) ** hours * math.exp(chance.gauss(0, 0.001))
        moment = STARTED + timedelta(hours=hours)
        changes: dict[str, Any] = {
            "started": moment,
            "ended": moment + timedelta(seconds=60),
            "starts": starts("a", "a"),
        }
        changes |= {name: values[at] for name, values in others.items() if at in values}
        plan.append(planned(stack, 2, seed))
        records.append(record(stack, 2, train_s, train_s + 9, seed, **changes))
    there = campaign(folder, plan, records)
    for at, each in enumerate(records):
        controller(there, each.run_id, 100 if at < 7 else 200)
    return there


def starts(*boots: str) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "started": 0.0,
            "node": f"worker{rank + 1}",
            "host": "h",
            "boot": boot,
            "by": "its launcher",
        }
        for rank, boot in enumerate(boots)
    ]


def controller(there: Campaign, run_id: str, pid: int) -> None:
    note = {"started": STARTED.isoformat(), "controller": {"pid": pid, "start": "1", "boot": "b"}}
    (there.folder / run_id / "01" / "started.json").write_text(json.dumps(note))


def found(there: Campaign) -> Drift:
    return drift(there, figures_of(there))


@pytest.mark.parametrize(("an_hour", "certain"), [(0.02, True), (-0.02, True), (0.0, False)])
def test_a_drift_is_found_with_its_size_and_none_where_there_is_none(
    tmp_path: Path, an_hour: float, certain: bool
) -> None:
    there = made(tmp_path, an_hour)
    line = found(there).trend
    assert line is not None and line.n == 12
    assert line.low < an_hour < line.high and line.high - line.low < 0.002
    assert line.certain is certain is (line.p < 0.05)
    (said,) = drift_sentences(found(there))
    assert said in conclusions(analyse(there))
    assert said.startswith("Times drifted: train_s of equal work changed by " if certain else "No drift")
    assert "; 12 runs over 5.5 h" in said and said.count(" an hour") == 1
    (row,) = [row for row in export_rows(analyse(there)) if row["section"] == "drift"]
    assert (row["value"], row["low"], row["high"], row["p"]) == (line.slope, line.low, line.high, line.p)


def test_the_trend_is_that_of_a_line_with_a_level_for_each_cell() -> None:
    chance = random.Random(2)
    sizes = (3, 4, 8)
    # Cells made one after another: a line through all runs would take their levels for a drift.
    cells = [
        [(size + chance.random(), math.log(10.0 * size) + chance.gauss(0, 0.01)) for _ in range(size)]
        for size in sizes
    ]
    points = np.concatenate(cells)
    design = np.zeros((len(points), 1 + len(cells)))
    design[:, 0] = points[:, 0]
    design[np.arange(len(points)), 1 + np.repeat(np.arange(len(cells)), sizes)] = 1
    fitted, residuals, *_ = np.linalg.lstsq(design, points[:, 1])
    error = math.sqrt(residuals[0] / (len(points) - 4) * np.linalg.inv(design.T @ design)[0, 0])
    line = trend(cells)
    assert line is not None
    assert math.log1p(line.slope) == pytest.approx(fitted[0])
    half = (math.log1p(line.high) - math.log1p(line.low)) / 2
    assert half / error == pytest.approx(2.201, abs=0.001)  # Student's t of 11 degrees of freedom


def test_without_a_drift_one_is_found_once_in_twenty() -> None:
    chance = np.random.default_rng(3)
    hours = np.arange(12.0)
    times = 1000
    alarms = 0
    for _ in range(times):
        points = np.column_stack([hours, chance.normal(0, 0.01, 12)])
        line = trend([points[0::2].tolist(), points[1::2].tolist()])
        assert line is not None
        alarms += line.certain
    assert 0.03 < alarms / times < 0.07


def test_boots_and_later_commands_are_marked(tmp_path: Path) -> None:
    booted = {at: starts("a", "a" if at < 3 else "b") for at in range(12)} | {5: starts("c", "b")}
    booted |= {at: starts("c", "b") for at in range(6, 12)}
    there = made(tmp_path, 0.0, starts=booted)
    drifted = found(there)
    assert drifted.boots == [Boot(1.5, ("worker2",)), Boot(2.5, ("worker1",))]
    assert drifted.resumed == [3.5]
    (said,) = drift_sentences(drifted)
    assert said.endswith(
        "In between worker2 booted before 1.5 h, worker1 booted before 2.5 h and the campaign was resumed at "
        "3.5 h."
    )
    svg = plots_of(analyse(there))["drift.svg"].decode()
    assert "<!-- nodes booted -->" in svg and "<!-- resumed -->" in svg and "<!-- ddp, n=6 -->" in svg
    quiet = made(tmp_path / "quiet", 0.0)
    for run in quiet.file.plan:
        controller(quiet, run.run_id, 100)
    assert drift_sentences(found(quiet))[0].endswith(
        "In between no node booted, and the campaign was not resumed."
    )
    assert "booted" not in plots_of(analyse(quiet))["drift.svg"].decode()


def test_what_records_have_not_noted_is_said(tmp_path: Path) -> None:
    there = made(tmp_path, 0.0, starts={3: None})
    (there.folder / there.file.plan[2].run_id / "01" / "started.json").unlink()
    assert drift_sentences(found(there))[0].endswith(
        "In between the campaign was resumed at 3.5 h. Not every run has noted whether nodes booted and "
        "whether the campaign was resumed in between."
    )


def test_few_runs_are_drawn_and_have_no_trend(tmp_path: Path) -> None:
    few = made(tmp_path, 0.02, seeds=LEAST // 2 - 1)
    drifted = found(few)
    assert len(drifted.runs) == LEAST - 2 and drifted.trend is None
    assert drift_sentences(drifted)[0].startswith(
        "Whether times drifted can't be told from 8 runs over 3.5 h: a trend needs 10. "
    )
    assert "drift.svg" in plots_of(analyse(few))


def test_a_few_seconds_say_nothing_of_an_hour() -> None:
    chance = np.random.default_rng(1)
    points = np.column_stack([np.arange(24) / 24000, chance.normal(0, 0.5, 24)])
    assert trend([[(hours, log) for hours, log in points.tolist()]]) is None
    points[:, 0] *= 1000
    assert trend([[(hours, log) for hours, log in points.tolist()]]) is not None


def test_nothing_is_said_of_single_runs(tmp_path: Path) -> None:
    single = made(tmp_path, 0.02, seeds=1)
    assert found(single) == Drift() and drift_sentences(found(single)) == []
    assert "drift.svg" not in plots_of(analyse(single))


def test_adopted_runs_and_those_of_stand_ins_are_left_out(tmp_path: Path) -> None:
    standin = dict.fromkeys(range(1, 12, 2), "A stand-in, made for tests.")
    there = made(tmp_path, 0.02, standin=standin)
    drifted = found(there)
    assert {run.stack for run in drifted.runs} == {"ddp"} and len(drifted.runs) == 6
    assert b"spark" not in plots_of(analyse(there))["drift.svg"]

    other = made(tmp_path / "adopted", 0.02, campaign={0: "20261120T000000Z"})
    origin = {"campaign": "20261120T000000Z", "attempt": 1}
    (other.folder / other.file.plan[0].run_id / "01" / "adopted.json").write_text(json.dumps(origin))
    assert [run.hours for run in found(other).runs] == [at / 2 for at in range(1, 12)]


def test_the_plot_is_the_same_again_and_has_a_caption(tmp_path: Path) -> None:
    once, again = (plots_of(analyse(made(tmp_path / name, 0.02))) for name in ("once", "again"))
    assert once == again and {"drift.svg", "drift.png"} < set(once)
    text = write_report(made(tmp_path / "report", 0.02))[0].read_text(encoding="utf-8")
    assert f"![{SHOWN['drift']}](plots/drift.svg)" in text
