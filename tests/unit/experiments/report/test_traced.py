"""Runs that were traced: their times are in no figure, their weights in all; they are made once."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.compare import comparison
from experiments.analysis.ladders import SkippedRung, waterfalls
from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun, make_plan
from experiments.cluster.description import Cluster
from experiments.matrix.loading import load_matrix
from experiments.records.record import Record
from experiments.report.frames import load
from experiments.report.sections.ladders import ladders_table
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.campaign.test_adoption import made
from tests.unit.experiments.made_up_ladder import (
    END,
    LADDER,
    MIDDLE,
    START,
    outcome,
    row,
    specification,
    with_ladders,
)
from tests.unit.experiments.made_up_records import campaign, quick, record, spec
from tests.unit.experiments.made_up_use import rank_use
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace
from tests.unit.experiments.records.test_records import Left
from tests.unit.experiments.report.drawn import rows, tables
from training.spec import RunSpec

STEPS = {"steps": "10-15"}
SLOW_S = 7777.0  # of a traced run: the profiler takes its time
DISTURBED = "Disturbed: 6 of 12 runs, by a trace of its steps 10-15."
TRACED = MATRIX.replace("seed: [1]\n", "seed: [1]\n  trace: [null, {steps: 1-2}]\n")


def traced(one: RunSpec) -> RunSpec:
    conditions = one.conditions.model_dump() | {"trace": STEPS}
    return RunSpec.model_validate(one.model_dump() | {"conditions": conditions})


def with_traces(folder: Path, weights: str | None = None, both: bool = True) -> Campaign:
    """DDP and Spark on two workers, three seeds, each once as it is (if `both`) and once traced."""
    plan, records = [], []
    for stack, seconds in (("ddp", 30.0), ("spark", 36.0)):
        for trace in (None, STEPS) if both else (STEPS,):
            for seed in (1, 2, 3):
                one = spec(stack, 2, seed) if trace is None else traced(spec(stack, 2, seed))
                axes = {"stack": stack, "workers": 2, "epochs": 2, "trace": trace, "seed": seed}
                plan.append(PlannedRun(run_id=one.run_id, axes=axes, specification=one))
                changed: dict[str, Any] = of_specification(one)
                if trace and weights and stack == "spark":
                    changed["weights_digest"] = weights
                took = SLOW_S if trace else seconds + seed
                new = record(stack, 2, took, took + 10, seed, **changed)
                used = [rank.model_dump() | {"use": rank_use()} for rank in new.ranks]
                records.append(Record.model_validate(new.model_dump() | {"ranks": used}))
    return campaign(folder, plan, records)


def test_times_of_traced_runs_are_in_no_figure(tmp_path: Path) -> None:
    analysis = analyse(with_traces(tmp_path))
    figures = analysis.figures
    assert [(cell.stack, cell.axes["trace"], len(cell.records)) for cell in figures.cells] == [
        ("ddp", None, 3),
        ("ddp", STEPS, 3),
        ("spark", None, 3),
        ("spark", STEPS, 3),
    ]
    for cell in figures.cells:
        times = (cell.train_s, cell.total_s, cell.phases, cell.around_training_s)
        assert all(each is None for each in times) == (cell.axes["trace"] is not None)
        assert cell.quality is not None and cell.quality.n == 3
    assert [(each.cell.stack, each.cell.axes["trace"]) for each in analysis.comparisons] == [("spark", None)]
    assert analysis.settings == [] and not figures.not_run
    assert [use.cell.axes["trace"] for use in analysis.resource_use] == [None, None]


def test_weights_of_traced_runs_prove_equality_and_the_opposite(tmp_path: Path) -> None:
    figures = analyse(with_traces(tmp_path / "equal")).figures
    assert len(figures.works) == 3 and not figures.weights_differ
    assert all(len(digests) == 2 for work in figures.works for digests in work.digests.values())
    assert analyse(with_traces(tmp_path / "unequal", weights="f" * 64)).figures.weights_differ


def test_the_report_says_which_runs_are_disturbed_and_links_their_traces(tmp_path: Path) -> None:
    there = with_traces(tmp_path)
    text = write_report(there)[0].read_text(encoding="utf-8")
    assert text.count(DISTURBED) == 2  # below the table of times, and in the methods
    assert not re.search(r"777\d|778\d", text)
    links = re.findall(r"\[(\d/\d)\]\(([^)]*/01/outputs/trace-\d\.json\.gz)\)", text)
    assert len(links) == 2 * 3 * 2 and links[0][0] == "1/0"
    run_ids = {run.run_id for run in there.file.plan if run.axes["trace"]}
    assert {path.split("/")[0] for _, path in links} == run_ids
    assert [cells["runs"] for cells in rows(tables(there)["Times, quality, weights"])] == [
        "3 of 3",
        "3 of 3, disturbed",
        "3 of 3",
        "3 of 3, disturbed",
    ]
    runs = load(there.folder).runs
    assert set(runs[runs.disturbed.notna()].run_id) == run_ids
    plain = quick(tmp_path / "plain")
    assert "traces" not in str(tables(plain)) and "isturbed" not in write_report(plain)[0].read_text("utf-8")


def test_a_campaign_of_nothing_but_traced_runs_has_a_report_without_times(tmp_path: Path) -> None:
    only = with_traces(tmp_path / "only", both=False)
    text = write_report(only)[0].read_text(encoding="utf-8")
    assert "Equal work gave equal weights, to the last bit" in text
    assert "No stack has runs that can be paired with ddp's, so nothing is said about their cost." in text
    assert not re.search(r"777\d|778\d", text)
    with pytest.raises(UserError, match="no run in common whose times count"):
        comparison(only, with_traces(tmp_path / "other", both=False))


def test_a_rung_of_traced_runs_is_left_out_with_the_reason(tmp_path: Path) -> None:
    plan: list[PlannedRun] = []
    records: list[Record] = []
    for seed in (1, 2, 3):
        for stack, tokenizing in (("spark", "in_loop"), ("spark", "before"), ("ddp", "before")):
            one = specification(stack, tokenizing, seed)
            one = traced(one) if (stack, tokenizing) == ("spark", "before") else one
            plan.append(row(one, written=len(plan)))
            records.append(outcome(one, 40.0 + seed + (3.0 if tokenizing == "in_loop" else 0.0), 1.0))
    found = waterfalls(analyse(with_ladders(campaign(tmp_path, plan, records), LADDER)).figures)
    (waterfall,) = found
    assert [(step.above, step.below) for step in waterfall.steps] == [(START, END)]
    assert SkippedRung(MIDDLE, "disturbed", "a trace of its steps 10-15") in waterfall.skipped
    assert any(
        f'the rung "{MIDDLE}" is left out. Its runs are disturbed by a trace of its steps 10-15.' in remark
        for remark in ladders_table(found).after
    )


def test_every_rank_must_leave_its_trace_and_the_record_names_them(tmp_path: Path) -> None:
    left = Left(tmp_path)
    left.request = dataclasses.replace(left.request, specification=traced(left.request.specification))
    (left.outputs / "trace-1.json.gz").write_bytes(b"a trace")
    found = left.compose()
    assert found.status == "failed"
    assert found.reason == "The run was to trace steps 10-15 on every rank, but left no trace-0.json.gz."
    (left.outputs / "trace-0.json.gz").write_bytes(b"another")
    found = left.compose()
    assert found.ok and {"trace-0.json.gz", "trace-1.json.gz"} < set(found.files)
    assert found.disturbed == "a trace of its steps 10-15" and found.train_s == 41.0
    assert found.notes == [
        "Disturbed on purpose by a trace of its steps 10-15 (trace-0.json.gz to trace-1.json.gz): its times "
        "are in no mean and no comparison; its weights and metrics count."
    ]


def test_a_traced_run_is_made_once_and_its_warm_up_is_not_traced(workplace: Workplace) -> None:
    workplace.matrix(TRACED.replace("warm_ups: false", "warm_ups: true"))
    status, output = workplace.run("run", "small")
    assert status == 0, output
    assert len(made(workplace)) == 10  # 8 runs, and a warm-up for each stack
    assert "Disturbed by a trace of its steps 1-2." in output
    assert not workplace.faults()
    assert workplace.run("run", "small")[0] == 0
    assert made(workplace) == []


def test_a_trace_beyond_the_end_of_a_run_is_refused_with_the_number_of_steps(tmp_path: Path) -> None:
    path = tmp_path / "small.yml"
    path.write_text(TRACED.replace("1-2", "2-3"), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_matrix(str(path))
    assert (
        "conditions.trace: the training ends with step 2, so there is no step 3 to trace; take earlier steps"
        in str(caught.value)
    )
    assert "(with stack=plain, workers=2, " in str(caught.value)
    path.write_text(TRACED.replace("1-2", "4-3"), encoding="utf-8")
    with pytest.raises(UserError, match=r"line 11 is not valid: conditions.trace.steps: the first"):
        load_matrix(str(path))


def test_users_who_start_together_are_not_traced(workplace: Workplace, tmp_path: Path) -> None:
    cluster = Cluster.model_validate_json((workplace.cluster_folder / "cluster.json").read_bytes())
    path = tmp_path / "small.yml"
    path.write_text(TRACED.replace("seed: [1]", "seed: [1, 2]") + "together: [[1, 2]]\n", encoding="utf-8")
    plan = make_plan(load_matrix(str(path)), cluster, "a" * 64)
    assert {run.axes["trace"] is not None: run.cannot_run for run in plan} == {
        False: None,
        True: "Runs that start together are compared by their times, which a trace disturbs.",
    }
