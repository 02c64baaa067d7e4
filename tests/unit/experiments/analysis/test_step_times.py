"""The steps' times of a campaign, rank by rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.analysis.analysis import analyse
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Rank, Record, StepTimes
from experiments.report.export_rows import export_rows
from experiments.report.sections.step_times import step_times_table
from tests.unit.experiments.made_up_records import campaign, record, spec


def with_steps(one: Record, median_ms: float) -> Record:
    """The record with steps whose median is higher by 1 ms on each further rank."""

    def placed(rank: Rank) -> Rank:
        median = median_ms + rank.rank
        times = StepTimes(steps=250, median_ms=median, p95_ms=2 * median, p99_ms=3 * median, longest_ms=90.0)
        return rank.model_copy(update={"step_times": times})

    return one.model_copy(update={"ranks": [placed(rank) for rank in one.ranks]})


def test_each_rank_has_its_own_and_runs_without_them_are_left_out(tmp_path: Path) -> None:
    records = [
        with_steps(record("ddp", 2, 30.0, 40.0, 1), 10.0),
        with_steps(record("ddp", 2, 30.0, 40.0, 2), 14.0),
        record("ddp", 2, 30.0, 40.0, 3),
        record("spark", 2, 30.0, 40.0, 1),
    ]
    plan = []
    for each in records:
        what = each.specification
        axes = {"stack": what.stack, "workers": 2, "epochs": 2, "seed": what.work.seed}
        plan.append(PlannedRun(run_id=each.run_id, axes=axes, specification=what))
    analysis = analyse(campaign(tmp_path, plan, records))

    zero, one = analysis.steps
    assert [(each.cell.stack, each.rank, each.nodes, each.runs) for each in (zero, one)] == [
        ("ddp", 0, ["worker1"], 2),
        ("ddp", 1, ["worker2"], 2),
    ]
    assert zero.median.mean == pytest.approx(12.0) and one.median.mean == pytest.approx(13.0)
    assert (zero.p95, zero.p99, zero.longest) == pytest.approx((24.0, 36.0, 90.0))
    assert len(step_times_table(analysis.steps).rows) == 2

    exported = {row["quantity"]: row for row in export_rows(analysis) if row["section"] == "steps"}
    assert exported["step_ms of rank 1, median"]["value"] == pytest.approx(13.0)
    assert exported["step_ms of rank 0, 99th percentile"]["value"] == pytest.approx(36.0)
    assert len(exported) == 8


def test_older_records_have_none(tmp_path: Path) -> None:
    one = spec("ddp", 1, 1)
    axes = {"stack": "ddp", "workers": 1, "epochs": 2, "seed": 1}
    plan = [PlannedRun(run_id=one.run_id, axes=axes, specification=one)]
    analysis = analyse(campaign(tmp_path, plan, [record("ddp", 1, 30.0, 40.0)]))
    assert analysis.steps == [] and step_times_table(analysis.steps).rows == []
