"""Runs that a stand-in made: their seconds are nowhere under their stack's name, their weights count."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.compare import comparison
from experiments.analysis.ladders import SkippedRung, waterfalls
from experiments.campaign.campaign import Campaign
from experiments.campaign.estimates import Estimates
from experiments.campaign.plan import PlannedRun
from experiments.campaign.stacks import Setup
from experiments.console.tables import show_campaign
from experiments.records.record import BY_STANDIN, Record
from experiments.report.export_rows import export_rows
from experiments.report.frames import load
from experiments.report.plots import plots_of
from experiments.report.sections.ladders import ladders_table
from experiments.report.sections.organisation import NOT_RECORDED
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from experiments.util.screen import Screen
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
from tests.unit.experiments.made_up_records import campaign, planned, quick, record, spec
from tests.unit.experiments.made_up_use import rank_use
from tests.unit.experiments.records.test_records import Left
from tests.unit.experiments.report.drawn import rows, tables
from tests.unit.experiments.report.test_organisation import NEEDS, TWO, keep, provisioned

STANDIN = "The master at http://198.18.0.1:8080 is a stand-in for Spark 1.0, made for tests."
SECONDS = re.compile(r"777\d|778\d")
TOOK_S = 7777.0  # of a stand-in's run, so that it is found wherever it may be


def with_standins(
    folder: Path, standins: tuple[int, ...] = (1, 2, 3), weights: str | None = None
) -> Campaign:
    """DDP and Spark on one worker and on two, three seeds; those of Spark with these seeds by a stand-in."""
    plan, records = [], []
    for stack, seconds in (("ddp", 30.0), ("spark", 36.0)):
        for workers in (1, 2):
            for seed in (1, 2, 3):
                plan.append(planned(stack, workers, seed))
                if stack == "ddp" or seed not in standins:
                    records.append(record(stack, workers, seconds + seed, seconds + seed + 10, seed))
                    continue
                changed: dict[str, Any] = {"weights_digest": weights} if weights else {}
                new = record(stack, workers, TOOK_S, TOOK_S + 10, seed, standin=STANDIN, **changed)
                used = [rank.model_dump() | {"use": rank_use()} for rank in new.ranks]
                records.append(Record.model_validate(new.model_dump() | {"ranks": used}))
    return campaign(folder, plan, records)


def test_a_record_keeps_what_stood_in_and_counts(tmp_path: Path) -> None:
    left = Left(tmp_path)
    left.write("launcher.json", {"queue_s": 0.5, "standin": STANDIN})
    found = left.compose()
    assert found.ok and found.standin == STANDIN and not found.timed
    assert found.why_not_timed == STANDIN and found.train_s == 41.0
    assert found.notes == [
        f"{STANDIN} The run's times are in no table and no plot; its weights and metrics count."
    ]
    left.write("launcher.json", {"queue_s": 0.5, "standin": None})
    assert left.compose().timed


def test_times_of_stand_ins_are_in_no_figure(tmp_path: Path) -> None:
    analysis = analyse(with_standins(tmp_path))
    for cell in analysis.figures.cells:
        times = (cell.train_s, cell.total_s, cell.phases, cell.around_training_s)
        assert all(each is None for each in times) == (cell.stack == "spark")
        assert cell.quality is not None and cell.quality.n == 3
    assert analysis.comparisons == [] and analysis.published and not analysis.figures.not_run
    assert {each.stack for each in analysis.published if each.here is not None} == {"ddp"}
    assert {each.cell.stack for each in analysis.resource_use} == set()
    found = {(each["section"], each["stack"]) for each in export_rows(analysis)}
    assert ("quality", "spark") in found and ("times", "ddp") in found
    of_spark = [each for each in export_rows(analysis) if each["stack"] == "spark"]
    # The dissertation's own figures stay.
    assert {each["section"] for each in of_spark if each["value"] is not None} == {"quality"}
    assert {each["section"] for each in of_spark} == {"quality", "dissertation"}


def test_weights_of_stand_ins_prove_equality_and_the_opposite(tmp_path: Path) -> None:
    figures = analyse(with_standins(tmp_path / "equal")).figures
    assert len(figures.works) == 6 and not figures.weights_differ
    assert analyse(with_standins(tmp_path / "unequal", weights="f" * 64)).figures.weights_differ


def test_the_report_says_stand_in_where_seconds_would_be(tmp_path: Path) -> None:
    there = with_standins(tmp_path)
    written = write_report(there)
    for path in written:
        if path.name in ("report.md", "tables.tex", "figures.csv"):
            without_digests = re.sub(r"[0-9a-f]{8,}", "", path.read_text(encoding="utf-8"))
            assert not SECONDS.search(without_digests), path
    text = written[0].read_text(encoding="utf-8")
    assert "6 runs of spark were made by a stand-in, so nothing is said about what they took." in text
    remark = (
        f"Stand-in: 6 of 12 runs, under the name of spark. {STANDIN} Their times are in no table and no plot"
    )
    assert text.count(remark) == 2  # below the table of times, and in the methods
    shown = rows(tables(there)["Times, quality, weights"])
    assert [(cells["runs"], cells["train_s"], cells["total_s"]) for cells in shown[2:]] == [
        ("3 of 3, 3 by a stand-in", BY_STANDIN, BY_STANDIN)
    ] * 2
    assert all(cells["accuracy"].startswith("0.780") and "3 seeds" in cells["weights"] for cells in shown)
    assert "tand-in" not in write_report(quick(tmp_path / "plain"))[0].read_text(encoding="utf-8")


def test_of_cells_that_a_stand_in_made_in_part_only_the_rest_is_timed(tmp_path: Path) -> None:
    there = with_standins(tmp_path, standins=(2,))
    analysis = analyse(there)
    (one,) = (cell for cell in analysis.figures.cells if (cell.stack, cell.workers) == ("spark", 2))
    assert one.train_s is not None and (one.train_s.n, one.train_s.mean) == (2, 38.0)
    assert [each.ratio.n for each in analysis.comparisons] == [2, 2]
    shown = rows(tables(there)["Times, quality, weights"])
    assert shown[3]["runs"] == "3 of 3, 1 by a stand-in" and shown[3]["train_s"].endswith("(n=2)")
    phases = {
        each["runs"]
        for each in export_rows(analysis)
        if (each["section"], each["stack"]) == ("phases", "spark")
    }
    assert phases == {2}


def test_plots_leave_stand_ins_out(tmp_path: Path) -> None:
    whole, nothing = (
        plots_of(analyse(with_standins(tmp_path / str(len(each)), each))) for each in ((), (1, 2, 3))
    )
    assert b"spark" in whole["phases.svg"] and b"spark" not in nothing["phases.svg"]
    # The dissertation's bars stay.
    assert [each["times.svg"].count(b"<!-- spark -->") for each in (whole, nothing)] == [2, 1]
    made = [record("spark", 2, TOOK_S, TOOK_S + 10, standin=STANDIN)]
    assert plots_of(analyse(campaign(tmp_path / "only", [planned("spark", 2)], made))) == {}


def test_data_frames_have_no_seconds_of_stand_ins(tmp_path: Path) -> None:
    frames = load(with_standins(tmp_path, standins=(1, 2)).folder)
    runs = frames.runs
    made = set(runs[runs.standin.notna()].run_id)
    assert (
        len(made) == 4
        and set(runs[runs.train_s.isna()].run_id) == set(runs[runs.total_s.isna()].run_id) == made
    )
    assert runs.quality.notna().all() and runs.weights_digest.notna().all()
    assert not made & set(frames.phases.run_id)
    for frame, column in ((frames.epochs, "seconds"), (frames.ranks, "train_s")):
        assert set(frame[frame[column].isna()].run_id) == made
    assert not any(
        ((frame == TOOK_S) | (frame == TOOK_S + 10) | (frame == TOOK_S / 2)).any(axis=None)
        for frame in (runs, frames.epochs, frames.phases, frames.ranks, frames.figures)
    )


def test_stand_ins_estimate_nothing(tmp_path: Path) -> None:
    with_standins(tmp_path)
    estimates = Estimates(tmp_path, {})
    assert estimates.of(spec("ddp", 2)) is not None
    assert estimates.of(spec("spark", 2)) is None


def test_campaigns_of_stand_ins_are_not_compared(tmp_path: Path) -> None:
    found = comparison(with_standins(tmp_path / "a"), with_standins(tmp_path / "b"))
    assert {change.axes["stack"] for change in found.changes} == {"ddp"}
    assert {(each.axes["stack"], each.lacks) for each in found.unpaired} == {("spark", "times")}
    one, other = (
        campaign(tmp_path / name, [planned("spark", 2)], [record("spark", 2, 1.0, 2.0, standin=STANDIN)])
        for name in ("one", "other")
    )
    with pytest.raises(UserError, match="no run in common whose times count"):
        comparison(one, other)


def test_what_installing_a_stand_in_took_is_not_shown(tmp_path: Path) -> None:
    there = with_standins(tmp_path)
    keep(there.folder, Setup(stacks=TWO, provisioning=provisioned()))
    found = {row[0]: row[1:] for row in tables(there)[NEEDS].texts}
    assert found["seconds in provisioning"] == [NOT_RECORDED, f"{BY_STANDIN} (5 tasks, 3 changes)"]
    assert found["their seconds in provisioning"][1].startswith("3.0 (")


def test_a_rung_of_stand_ins_is_left_out_with_the_reason(tmp_path: Path) -> None:
    plan: list[PlannedRun] = []
    records: list[Record] = []
    for seed in (1, 2, 3):
        for stack, tokenizing in (("spark", "in_loop"), ("spark", "before"), ("ddp", "before")):
            one = specification(stack, tokenizing, seed)
            plan.append(row(one, written=len(plan)))
            made = outcome(one, 40.0 + seed + (3.0 if tokenizing == "in_loop" else 0.0), 1.0)
            if (stack, tokenizing) == ("spark", "before"):
                made = made.model_copy(update={"standin": STANDIN})
            records.append(made)
    found = waterfalls(analyse(with_ladders(campaign(tmp_path, plan, records), LADDER)).figures)
    (waterfall,) = found
    assert [(step.above, step.below) for step in waterfall.steps] == [(START, END)]
    assert SkippedRung(MIDDLE, "stand-in", STANDIN) in waterfall.skipped
    assert any(
        f'the rung "{MIDDLE}" is left out. Its runs were made by a stand-in. {STANDIN}' in remark
        for remark in ladders_table(found).after
    )


def test_the_screen_shows_no_seconds_of_stand_ins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    show_campaign(Screen(), with_standins(tmp_path))
    shown = capsys.readouterr().out
    assert shown.count(STANDIN) == 6 and not SECONDS.search(re.sub(r"[0-9a-f]{8}", "", shown))
    assert "41.0" in shown
