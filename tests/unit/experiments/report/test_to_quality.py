"""Time to quality: on hand-made runs whose times to the target are known, and runs that never reach it."""

from __future__ import annotations

import csv
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from scipy import stats

from experiments.analysis.analysis import analyse
from experiments.analysis.to_quality import CellToTarget, ToQuality, run_to_target
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.campaign.plan import PlannedRun
from experiments.campaign.presentation import Presentation, write_presentation
from experiments.matrix.target import Target
from experiments.records.record import BY_STANDIN, Record
from experiments.report.formats import NOTHING
from experiments.report.sections.conclusions import conclusions
from experiments.report.sections.to_quality import TITLE
from experiments.report.writer import write_report
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from tests.unit.experiments.report.drawn import rows, tables
from tests.unit.experiments.report.test_programs import script_run

TARGET = Target(metric="accuracy", at_least=0.75)
EPOCHS = 4
SET_UP_S = 2.0
EPOCH_S = {"ddp": 10.0, "spark": 12.0}
REACHED = (1, 2, 2, 3, None)  # after which epoch, by seed


def curve(reached: int | None, seconds: float) -> list[dict[str, Any]]:
    """Epochs of which one is the first that is good enough; later ones need not be."""
    return [
        {
            "epoch": epoch,
            "seconds": seconds,
            "validation_loss": 0.5,
            "validation_accuracy": 0.75 if epoch == reached else 0.74,
        }
        for epoch in range(1, EPOCHS + 1)
    ]


def made(stack: str, seed: int, reached: int | None, **changes: Any) -> Record:
    one = spec(stack, 2, seed)
    specification = one.model_copy(update={"work": one.work.model_copy(update={"epochs": EPOCHS})})
    train_s = SET_UP_S + EPOCHS * EPOCH_S[stack]
    changed = of_specification(specification) | {"epochs": curve(reached, EPOCH_S[stack])} | changes
    return record(stack, 2, train_s, train_s + 10, seed, **changed)


def runs(spark: tuple[int | None, ...] = REACHED) -> list[Record]:
    return [
        made(stack, seed, reached)
        for stack, all_reached in (("ddp", REACHED), ("spark", spark))
        for seed, reached in enumerate(all_reached, start=1)
    ]


def with_target(folder: Path, records: list[Record], target: Target | None = TARGET) -> Campaign:
    plan = [
        PlannedRun(
            run_id=each.run_id,
            axes={"stack": each.specification.stack, "workers": 2, "epochs": EPOCHS}
            | {"seed": each.specification.work.seed},
            specification=each.specification,
        )
        for each in records
    ]
    found = campaign(folder, plan, records)
    file = found.file.model_copy(update={"target": target})
    (found.folder / "campaign.json").write_text(file.model_dump_json())
    return open_campaign(found.folder)


def analysed(made_up: Campaign) -> ToQuality:
    found = analyse(made_up).to_quality
    assert found is not None
    return found


def cells(found: ToQuality) -> dict[str, CellToTarget]:
    return {each.cell.stack: each for each in found.cells}


def test_the_median_the_censored_runs_and_the_ratio_by_hand(tmp_path: Path) -> None:
    found = cells(analysed(with_target(tmp_path, runs())))
    ddp, spark = found["ddp"], found["spark"]
    # Set-up, and 10 s or 12 s for each epoch until the one that reached it; the fifth never did.
    assert [run.seconds for run in ddp.runs] == [12.0, 22.0, 22.0, 32.0, 42.0]
    assert [run.seconds for run in spark.runs] == [14.0, 26.0, 26.0, 38.0, 50.0]
    assert ddp.epochs == spark.epochs == [1, 2, 2, 3]
    # 4/5, 2/5 and 1/5 are left.
    assert ddp.time is not None and spark.time is not None
    assert (ddp.time.median_s, ddp.time.low_s, ddp.time.high_s, ddp.time.n) == (22.0, 12.0, None, 5)
    assert spark.time.median_s == 26.0
    logs = [log(14 / 12), log(26 / 22), log(26 / 22), log(38 / 32)]
    half = float(stats.t.ppf(0.975, 3)) * stdev(logs) / sqrt(4)
    assert ddp.ratio is None and spark.ratio is not None and spark.ratio.n == 4
    assert spark.ratio.low is not None and spark.ratio.high is not None
    assert spark.ratio.ratio == pytest.approx(exp(fmean(logs)))
    assert spark.ratio.low == pytest.approx(exp(fmean(logs) - half))
    assert spark.ratio.high == pytest.approx(exp(fmean(logs) + half))


def test_the_table_the_sentence_on_the_epochs_and_the_exported_rows(tmp_path: Path) -> None:
    made_up = with_target(tmp_path, runs())
    table = tables(made_up)[TITLE]
    ddp, spark = rows(table)
    assert "The target is accuracy at least 0.75, on the validation split." in table.before
    assert (ddp["runs"], ddp["reached"], ddp["after epoch"]) == ("5", "4", "1 to 3")
    assert (ddp["an epoch, s"], spark["an epoch, s"]) == ("10.0", "12.0")
    assert (ddp["median, s"], ddp["95 % interval, s"], ddp["over ddp"]) == ("22.0", "at least 12.0", NOTHING)
    assert (spark["median, s"], spark["pairs"], spark["over ddp"]) == ("26.0", "4", "1.179")
    assert spark["verdict"] == "takes longer"
    (remark,) = table.after
    assert remark.startswith("Seed by seed, all stacks reached the target after the same epoch, or never (5 ")

    write_report(made_up)
    report = (made_up.folder / "report.md").read_text()
    assert report.index("\n## How good the models are\n") < report.index(f"\n## {TITLE}\n")
    with (made_up.folder / "figures.csv").open(newline="") as file:
        exported = [row for row in csv.DictReader(file) if row["section"] == "to quality"]
    of_ddp = {(row["quantity"], row["seed"]): row for row in exported if row["stack"] == "ddp"}
    assert (of_ddp["runs that reached the target", ""]["value"]) == "4"
    median = of_ddp["to_target_s, median", ""]
    assert (median["value"], median["low"], median["high"], median["runs"]) == ("22", "12", "", "5")
    assert of_ddp["to_target_s of the run", "3"]["value"] == "22"
    assert of_ddp["epoch of the target", "3"]["value"] == "2"
    assert of_ddp["to_target_s of the run, censored", "5"]["value"] == "42"
    assert ("epoch of the target", "5") not in of_ddp
    (ratio,) = (row for row in exported if row["quantity"] == "to_target_s over ddp")
    assert ratio["stack"] == "spark" and float(ratio["p"]) < 0.05 and ratio["runs"] == "4"


def test_epochs_that_differ_are_named(tmp_path: Path) -> None:
    table = tables(with_target(tmp_path, runs(spark=(1, 2, None, 3, None))))[TITLE]
    (remark,) = table.after
    assert remark == (
        "Seed by seed, the stacks did NOT reach the target after the same epoch in 1 of 5 cases compared: "
        "2 workers, 4 epochs, seed 3: ddp after epoch 2 and spark never."
    )
    assert rows(table)[1]["pairs"] == "3"  # only seeds with which both reached it


def test_where_fewer_than_half_reached_it_no_median_is_made_up(tmp_path: Path) -> None:
    never: tuple[int | None, ...] = (None,) * 5
    made_up = with_target(tmp_path / "some", runs(spark=(1, None, None, None, None)))
    _, spark = rows(tables(made_up)[TITLE])
    # 14 s of all, and then 4/5 until the others' end after 50 s.
    mean = 14 + 4 / 5 * 36
    assert spark["median, s"] == f"not reached (restricted mean within 50.0 s: {mean:.1f} s)"
    assert spark["95 % interval, s"] == "at least 14.0"
    assert spark["verdict"] == "a single pair: no interval, and nothing can be said"
    _, spark = rows(tables(with_target(tmp_path / "none", runs(spark=never)))[TITLE])
    assert (spark["reached"], spark["after epoch"], spark["median, s"]) == ("0", NOTHING, "not reached")
    assert {spark[name] for name in ("95 % interval, s", "pairs", "over ddp", "verdict")} == {NOTHING}


def test_seconds_that_are_not_the_stacks_are_nowhere_but_their_epochs_count(tmp_path: Path) -> None:
    standin = [
        made(stack, seed, reached, **({"standin": "A stand-in."} if stack == "spark" else {}))
        for stack in EPOCH_S
        for seed, reached in enumerate(REACHED, start=1)
    ]
    made_up = with_target(tmp_path, standin)
    spark = cells(analysed(made_up))["spark"]
    assert spark.time is None and spark.ratio is None and spark.epochs == [1, 2, 2, 3]
    table = tables(made_up)[TITLE]
    assert rows(table)[1]["median, s"] == BY_STANDIN
    assert "all stacks reached the target after the same epoch" in table.after[0]


def test_less_may_be_better_and_epochs_without_an_evaluation_are_passed_over() -> None:
    losses = [0.9, None, 0.4, 0.6]
    epochs = [
        {"epoch": at, "seconds": 10.0} | ({} if loss is None else {"validation_loss": loss})
        for at, loss in enumerate(losses, start=1)
    ]
    run = run_to_target(made("ddp", 1, None, epochs=epochs), Target(metric="loss", at_most=0.5))
    assert run is not None and (run.epoch, run.seconds) == (3, 32.0)
    assert run_to_target(made("ddp", 1, 1), Target(metric="f1", at_least=0.5)) is None


def test_a_programs_time_runs_from_its_start() -> None:
    epochs = [{"epoch": 1, "seconds": 20.0}, {"epoch": 2, "seconds": 5.0, "validation_accuracy": 0.8}]
    changed = of_specification(script_run("ddp", 1)) | {"epochs": epochs}
    run = run_to_target(record("ddp", 2, 40.0, 50.0, 1, **changed), TARGET)
    assert run is not None and (run.epoch, run.seconds) == (2, 25.0)  # not what came after, until 40 s


def test_a_metric_that_no_run_has_is_said_in_one_sentence(tmp_path: Path) -> None:
    made_up = with_target(tmp_path, runs(), Target(metric="f1_macro", at_least=0.5))
    analysis = analyse(made_up)
    assert conclusions(analysis)[-1] == (
        "There is no time to quality: the matrix's target is f1 macro at least 0.5, but the evaluations of "
        "its runs have only loss and accuracy; name one of these."
    )
    assert TITLE not in tables(made_up)


def test_runs_without_the_metric_are_no_censored_ones(tmp_path: Path) -> None:
    lacking = [{"epoch": epoch, "seconds": 10.0, "validation_loss": 0.5} for epoch in range(1, EPOCHS + 1)]
    made_up = with_target(tmp_path, [*runs()[1:], made("ddp", 1, None, epochs=lacking)])
    assert len(cells(analysed(made_up))["ddp"].runs) == 4
    assert tables(made_up)[TITLE].after[0].startswith("1 run has no value of accuracy, so nothing is said ")


def test_without_a_target_nothing_is_said(tmp_path: Path) -> None:
    made_up = with_target(tmp_path, runs(), None)
    assert analyse(made_up).to_quality is None
    assert TITLE not in tables(made_up)
    assert not any("quality" in said for said in conclusions(analyse(made_up)))


def test_a_target_that_was_taken_back_is_none(tmp_path: Path) -> None:
    made_up = with_target(tmp_path, runs())
    assert made_up.file.target == TARGET
    write_presentation(made_up.folder, Presentation(description="Without.", ladders=[]))
    assert open_campaign(made_up.folder).file.target is None
