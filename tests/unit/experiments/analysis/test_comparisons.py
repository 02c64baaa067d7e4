"""What runs exclude of the dissertation's figures, and what settings change in a step and around training."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.dissertation_tables import filled_tables
from experiments.analysis.step_samples import BATCH
from experiments.analysis.verdicts import sign
from experiments.campaign.plan import PlannedRun
from experiments.report.export_rows import export_rows
from experiments.report.sections.conclusions import conclusions
from experiments.report.sections.settings import settings_table
from experiments.report.sections.stack_comparisons import comparisons_table, excluded_sentences
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, planned, record, seeds, spec
from tests.unit.experiments.report.drawn import rows

#: A rank of two evaluates 500 of the 1,000 samples in each epoch, which has 63 steps.
EVALUATED = 500 / 63


def test_a_figure_is_excluded_only_if_evaluating_less_cannot_explain_it(tmp_path: Path) -> None:
    (between,) = analyse(seeds(tmp_path / "between", 1.2, 0.002)).comparisons
    there, more = between.published_step_s, between.more_a_step
    assert there is not None and more.low is not None and more.high is not None
    assert between.evaluated == pytest.approx(EVALUATED)
    assert between.published_ends_s == pytest.approx((there * EVALUATED / BATCH, there))
    # Far below the dissertation's figure, but all of that may be evaluation, of which there is less here.
    assert there * EVALUATED / BATCH < more.low < more.high < there
    assert not between.excludes_published and excluded_sentences([between]) == []

    found = analyse(seeds(tmp_path / "below", 1.0, 0.002))
    (below,) = found.comparisons
    assert below.excludes_published
    (said,) = excluded_sentences([below])
    assert "(+120.2 ms with 32 samples evaluated by each rank for the 32 of a step; with 8, as here, " in said
    assert said.endswith("+29.8 to +120.2 ms, whatever part of it is evaluation) is excluded here.")
    (row,) = rows(comparisons_table([below], "ddp", found.noise))
    assert row["dissertation, ms"] == "+120.2"
    assert row["dissertation, evaluating as much, ms"] == "+29.8 to +120.2"
    (exported,) = [each for each in export_rows(found) if each["quantity"].startswith("train_s a step")]
    assert (exported["value"], exported["dissertation"]) == (below.more_a_step.mean, there)


@pytest.mark.parametrize(("stacks", "published"), [(("ddp", "spark35"), 120.2), (("spark", "spark35"), None)])
def test_the_dissertations_release_of_a_stack_stands_beside_its_figures(
    tmp_path: Path, stacks: tuple[str, str], published: float | None
) -> None:
    plan, records = [], []
    for stack, more in zip(stacks, (0.0, 1.0), strict=True):
        for seed in (1, 2, 3):
            plan.append(planned(stack, 2, seed))
            records.append(record(stack, 2, 30 + seed / 10 + more, 50.0, seed))
    analysis = analyse(campaign(tmp_path, plan, records, baseline=stacks[0]))
    (between,) = analysis.comparisons
    # Two releases of one stack: the dissertation has no such difference.
    found = None if between.published_step_s is None else round(1000 * between.published_step_s, 1)
    assert found == published
    (table,) = [
        each
        for each in filled_tables(analysis.published, analysis.dissertation)
        if each.printed.number == "5.3"
    ]
    ours = [row.stack for row in table.rows if row.runs]
    assert ours == [stack for stack in stacks if stack != "ddp"]


def with_setting(folder: Path, hook: float, again: float, value: Any = "stock") -> Analysis:
    """Runs of one stack, half with another allocator: a step takes 20 ms more, and `hook` s come before.

    Repeated runs differ by `again` s outside train_s, seed for seed.
    """
    chance, plan, records = random.Random(1), [], []
    for allocator, repetition in (("tuned", 1), (value, 1), ("tuned", 2)):
        for seed in range(1, 7):
            one = spec("ddp", 2, seed)
            changed = {"allocator": allocator, "repetition": repetition}
            specification = one.model_copy(update={"conditions": one.conditions.model_copy(update=changed)})
            other = allocator != "tuned"
            train_s = 30 + 0.020 * one.work.steps * other + chance.gauss(0, 0.05)
            total_s = train_s + 9 + hook * other + again * (repetition - 1) * (-1) ** seed
            total_s += chance.gauss(0, 0.05)
            axes = {"stack": "ddp", "workers": 2, "epochs": 2, **changed, "seed": seed}
            plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
            records.append(record("ddp", 2, train_s, total_s, seed, **of_specification(specification)))
    return analyse(campaign(folder, plan, records))


def test_a_setting_of_one_stack_is_compared_in_ms_a_step_and_outside_training(tmp_path: Path) -> None:
    analysis = with_setting(tmp_path, 5.0, 0.1)
    (found,) = analysis.settings
    step, outside = found.more_a_step, found.more_outside
    assert step is not None and step.low is not None and step.high is not None
    assert step.low < 0.020 < step.high < 0.022
    assert outside is not None and outside.low is not None and 4.8 < outside.low < 5.0
    assert analysis.noise.outside_s is not None and outside.floor == analysis.noise.outside_s < 1
    said = " ".join(conclusions(analysis))
    assert "Outside train_s, allocator stock takes 4." in said and " s more than tuned (ddp" in said
    assert "and none outside it below 0." in said
    (row,) = rows(settings_table(analysis.settings))
    assert row["ms more a step"].startswith("+20.") or row["ms more a step"].startswith("+19.")
    assert (row["verdict"], row["verdict, outside"]) == ("takes longer", "takes longer")
    quantities = [each["quantity"] for each in export_rows(analysis)]
    assert "outside train_s, s, allocator stock more than tuned" in quantities
    assert "train_s a step, s, allocator stock more than tuned" in quantities
    assert "outside train_s, s more" in quantities


def test_nothing_outside_training_is_claimed_below_what_repeated_runs_differ_by_there(tmp_path: Path) -> None:
    analysis = with_setting(tmp_path, 5.0, 6.0)
    (found,) = analysis.settings
    outside = found.more_outside
    assert outside is not None and outside.low is not None and outside.low > 0
    assert outside.floor is not None and outside.floor > 6 and sign(outside) == 0
    assert "Outside train_s, allocator" not in " ".join(conclusions(analysis))
    (row,) = rows(settings_table(analysis.settings))
    assert row["verdict, outside"].startswith("within the noise: runs that differ in nothing may be up to")
    assert found.outcome == "longer"  # the noise of train_s is another one


def test_stacks_are_compared_outside_training_with_intervals_that_hold_at_once(tmp_path: Path) -> None:
    plan, records = [], []
    for stack, more in (("ddp", 0.0), ("spark", 3.0), ("determined", 1.0)):
        for seed in (1, 2, 3, 4):
            one = spec(stack, 2, seed)
            axes = {"stack": stack, "workers": 2, "epochs": 2, "seed": seed}
            plan.append(PlannedRun(run_id=one.run_id, axes=axes, specification=one))
            total_s = 40.0 + seed + more * (1 + 0.1 * seed)
            records.append(record(stack, 2, 30.0 + seed / 7, total_s, seed))
    for each in analyse(campaign(tmp_path, plan, records)).comparisons:
        found = each.more_outside
        assert found is not None and found.high is not None and found.error is not None
        assert found.high - found.mean == pytest.approx(stats.t.ppf(1 - 0.025 / 2, 3) * found.error)
