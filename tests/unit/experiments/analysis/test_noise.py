"""An A/A test in a matrix: how far apart runs are that differ in nothing, and that no less is claimed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.analysis.added import STEPS, certain
from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.factors import recipes
from experiments.analysis.noise import noise
from experiments.analysis.statistics import Difference, Ratio
from experiments.analysis.verdicts import outcome, sign
from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.report.export_rows import export_rows
from experiments.report.sections.added import added_table
from experiments.report.sections.conclusions import conclusions, workers_sentence
from experiments.report.sections.minute import in_one_minute
from experiments.report.sections.stack_comparisons import comparisons_table
from experiments.report.verdict_words import percent_text, verdict
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, planned, record, spec

SEEDS = range(1, 9)


def made(folder: Path, spark: float, again: float | None, seeds: range = SEEDS) -> Campaign:
    """Runs whose times vary by a thousandth, Spark's `spark` times as long; DDP's second times by `again`."""
    chance, plan, records = random.Random(1), [], []
    times = {("ddp", 1): (1.0, 0.001), ("spark", 1): (spark, 0.001)}
    times |= {} if again is None else {("ddp", 2): (1.0, again)}
    for (stack, repetition), (factor, spread) in times.items():
        for seed in seeds:
            one = spec(stack, 2, seed)
            conditions = one.conditions.model_copy(update={"repetition": repetition})
            specification = one.model_copy(update={"conditions": conditions})
            train_s = 30.0 * (1 + seed / 100) * factor * (1 + chance.gauss(0, spread))
            axes = {"stack": stack, "workers": 2, "epochs": 2, "repetition": repetition, "seed": seed}
            plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
            records.append(record(stack, 2, train_s, train_s + 9, seed, **of_specification(specification)))
    return campaign(folder, plan, records)


def said(analysis: Analysis) -> str:
    return " ".join(conclusions(analysis))


def test_a_difference_is_claimed_only_above_the_noise_floor(tmp_path: Path) -> None:
    quiet, loud = (analyse(made(tmp_path / str(again), 1.01, again)) for again in (0.001, 0.03))
    assert quiet.noise.floor is not None and quiet.noise.floor < 0.003
    assert [each.outcome for each in quiet.comparisons] == ["longer"]
    assert "spark with 2 workers takes 1.01" in said(quiet)

    floor = loud.noise.floor
    assert floor is not None and 0.015 < floor < 0.06
    (compared,) = loud.comparisons
    assert compared.ratio.low is not None and compared.ratio.low > 1  # an interval of its own that excludes 1
    assert compared.outcome == "noise"
    assert "differs from it by no more than the noise" in said(loud)
    assert verdict(compared.ratio).startswith(
        "within the noise: runs that differ in nothing may be up to about"
    )
    assert "Repeated with nothing changed (A/A), runs of ddp took" in said(loud)
    assert "(2 workers, 2 epochs, 8 pairs) as long as the first ones" in said(loud)
    assert f"no difference in train_s below {percent_text(floor)} is claimed" in said(loud)
    assert not loud.settings  # the repetition is no setting

    exported = [row for row in export_rows(loud) if row["section"] == "noise"]
    assert {(row["stack"], row["runs"], row["setting"]) for row in exported} == {("ddp", 8, "repetition 2")}
    quantities = [row["quantity"] for row in exported]
    assert quantities == ["train_s over the first ones", "outside train_s, s more"]

    large = analyse(made(tmp_path / "large", 1.5, 0.03))
    assert [each.outcome for each in large.comparisons] == ["longer"]


def test_a_repetition_is_no_factor_no_setting_and_nothing_that_the_dissertation_has(tmp_path: Path) -> None:
    analysis = analyse(made(tmp_path, 1.01, 0.03))
    figures = analysis.figures
    assert [cell.settings for cell in figures.cells] == [{}, {}, {"repetition": 2}]
    assert recipes(figures, noise(figures).floor) == []
    assert analysis.settings == []
    assert {each.runs for each in analysis.published if each.stack == "ddp" and each.workers == 2} == {8, 0}
    assert all(not each.settings for each in analysis.published)


def test_what_the_dissertation_adds_is_excluded_only_beyond_the_noise(tmp_path: Path) -> None:
    (found,) = analyse(made(tmp_path, 1.01, 0.001)).comparisons
    more = found.more_a_step
    assert more.low is not None and more.high is not None
    above = replace(found, published_step_s=more.high + 0.001, evaluated=32.0)
    assert replace(above, noise_step_s=0.0).excludes_published
    assert not replace(above, noise_step_s=0.002).excludes_published
    assert replace(above, noise_step_s=0.0005).excludes_published


def test_without_repetitions_the_report_says_that_the_noise_is_not_known(tmp_path: Path) -> None:
    found = analyse(made(tmp_path / "without", 1.01, None))
    assert found.noise.again == [] and found.noise.floor is None
    (remark,) = comparisons_table(found.comparisons, "ddp", found.noise).after
    assert remark.startswith("The matrix repeats no run of ddp")
    assert "A/A" not in said(found)
    found = analyse(made(tmp_path / "single", 1.01, 0.03, range(1, 2)))
    assert len(found.noise.again) == 1 and found.noise.floor is None
    assert "ddp was repeated, but not often enough" in said(found)
    assert comparisons_table(found.comparisons, "ddp", found.noise).after == []


def test_no_speed_up_below_the_noise_is_claimed(tmp_path: Path) -> None:
    times = {1: (50.0, 51.0, 52.0), 2: (49.0, 50.1, 51.0)}
    plan = [planned("ddp", workers, seed) for workers in times for seed in (1, 2, 3)]
    records = [
        record("ddp", workers, seconds, 60.0, seed)
        for workers, found in times.items()
        for seed, seconds in enumerate(found, 1)
    ]
    figures = analyse(campaign(tmp_path, plan, records)).figures
    assert workers_sentence(figures, None).startswith("2 workers train 1.02 to 1.02 times as fast as one")
    assert workers_sentence(figures, 0.01).startswith("2 workers train 1.02 to 1.02 times as fast as one")
    noisy = workers_sentence(figures, 0.03)
    assert noisy.startswith("2 workers differ from one on ddp by no more than the noise (1.02 to 1.02 times")


def test_no_part_is_claimed_to_be_longer_by_less_than_the_noise_of_what_it_is_a_part_of(
    tmp_path: Path,
) -> None:
    # Spark's steps take 0.3 s longer, which its pairs show; repeated runs of DDP differ by more, or by less.
    quiet, loud = (analyse(made(tmp_path / str(again), 1.01, again)) for again in (0.001, 0.03))
    for analysis, claimed in ((quiet, True), (loud, False)):
        (steps,) = [part for each in analysis.added for part in each.parts if part.name == STEPS]
        more = steps.added["spark"]
        assert more.low is not None and more.low > 0 and certain(more) is claimed
        assert more.floor == pytest.approx((analysis.noise.floor or 0) * 30 * 1.045, rel=0.01)
        where = next(each.text for each in in_one_minute(analysis) if each.question == "Where?")
        assert ("steps, +0." in where) is claimed
    assert (
        "by the noise floors of train_s and of what is outside it" in added_table(loud.added, "ddp").after[0]
    )


@pytest.mark.parametrize(
    ("ratio", "shown"), [(1.02, "noise"), (0.98, "noise"), (1.05, "longer"), (0.95, "shorter")]
)
def test_the_floor_holds_both_ways(ratio: float, shown: str) -> None:
    found = Ratio(ratio, ratio - 0.001, ratio + 0.001, 0.001, 0.002, 0.0005, 10, floor=0.03)
    assert outcome(found) == shown
    difference = Difference(ratio - 1, ratio - 1.001, ratio - 0.999, 0.001, 0.002, 0.0005, 10, floor=0.03)
    assert sign(difference) == {"noise": 0, "longer": 1, "shorter": -1}[shown]
