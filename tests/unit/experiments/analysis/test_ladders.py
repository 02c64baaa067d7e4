"""The ladder: what it says about records with a known effect, and that it claims no more."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pyarrow import csv
from scipy import stats

from experiments.analysis.analysis import analyse
from experiments.analysis.figures import figures_of
from experiments.analysis.ladders import SkippedRung, Waterfall, waterfalls
from experiments.analysis.statistics import mean_difference
from experiments.report.names import ladder_name
from experiments.report.sections.conclusions import conclusions
from experiments.report.sections.ladders import draw_waterfalls, ladders_table
from experiments.report.writer import write_report
from tests.unit.experiments.made_up_ladder import (
    END,
    LADDER,
    MIDDLE,
    START,
    ladder,
    outcome,
    row,
    specification,
    with_ladders,
)
from tests.unit.experiments.made_up_records import campaign
from tests.unit.experiments.report.drawn import tables


def only(made: object) -> Waterfall:
    (found,) = waterfalls(figures_of(made))  # type: ignore[arg-type]
    return found


def test_each_step_is_what_it_was_made_to_be(tmp_path: Path) -> None:
    found = only(ladder(tmp_path, seeds=5, tokenizing_s=6.0, stack_s=2.0, noise_s=0.1))
    assert (found.ladder, found.axes) == ("Spark", {"workers": 2, "epochs": 2})
    assert [(step.above, step.below) for step in found.steps] == [(START, MIDDLE), (MIDDLE, END)]
    for step, true in zip([*found.steps, found.whole], (6.0, 2.0, 8.0), strict=True):
        assert step is not None and step.seconds.n == 5 and step.outcome == "costs"
        assert step.seconds.low is not None and step.seconds.high is not None
        assert step.seconds.low < true < step.seconds.high < step.seconds.low + 1.0
        assert step.percent is not None and step.percent.mean == pytest.approx(true / 49.0 * 100, rel=0.03)
    (name, seconds), _ = found.steps[0].phases
    assert name == "data" and seconds == pytest.approx(6.0)
    # Training's own "other", not the whole run's, which also holds the time around training.
    (name, seconds), _ = found.steps[1].phases
    assert name == "other" and seconds == pytest.approx(2.0, abs=0.3)
    assert found.skipped == [SkippedRung("more threads", "same run", START)]
    assert [label for label, _ in found.rungs] == [START, MIDDLE, END]


def test_the_interval_is_students_of_the_pairs() -> None:
    differences = [1.0, 1.5, 0.2, 2.2]
    found = mean_difference(differences)
    theirs = stats.ttest_1samp(differences, 0.0)
    ends = theirs.confidence_interval(0.95)
    assert found is not None and found.mean == pytest.approx(1.225) and found.n == 4
    assert (found.low, found.high, found.p) == pytest.approx((ends.low, ends.high, theirs.pvalue))
    assert mean_difference([]) is None


def test_nothing_is_claimed_that_the_interval_does_not_allow(tmp_path: Path) -> None:
    found = only(ladder(tmp_path, seeds=4, tokenizing_s=8.0, stack_s=0.0, noise_s=0.5))
    costs, nothing = found.steps
    assert (costs.outcome, nothing.outcome) == ("costs", "open")
    # A difference seen four times in five is larger than one whose interval just excludes 0.
    assert nothing.seconds.visible is not None and costs.seconds.mean > nothing.seconds.visible
    half = (nothing.seconds.high or 0.0) - nothing.seconds.mean
    assert half < nothing.seconds.visible < 2.5 * half  # corrected as one of three
    assert nothing.seconds.low is not None and nothing.seconds.high is not None
    assert nothing.seconds.low < 0 < nothing.seconds.high
    assert costs.seconds.error is not None and nothing.seconds.p == 1.0
    alone = 2 * stats.t.sf(costs.seconds.mean / costs.seconds.error, 3)
    assert costs.seconds.p == pytest.approx(3 * alone)
    saves = only(ladder(tmp_path / "less", seeds=5, tokenizing_s=-4.0, stack_s=0.0, noise_s=0.1))
    assert saves.steps[0].outcome == "saves"


def test_a_single_pair_has_no_interval_and_says_so(tmp_path: Path) -> None:
    made = ladder(tmp_path, seeds=1, tokenizing_s=6.0, stack_s=2.0, noise_s=0.0)
    table = ladders_table(waterfalls(figures_of(made)))
    assert [cells[3:9] for cells in table.texts[:1]] == [
        ["1", "+6.00", "\N{EN DASH}", "+14.0", "\N{EN DASH}", "\N{EN DASH}"]
    ]
    assert {step.outcome for step in only(made).every_step} == {"none"}


def test_a_rung_that_cannot_be_run_is_left_out_and_its_neighbours_are_compared(tmp_path: Path) -> None:
    plan, records, why = [], [], "It is too slow here."
    for seed in (1, 2, 3):
        runs = [specification("spark", "in_loop", seed), specification("spark", "before", seed)]
        runs.append(specification("ddp", "before", seed))
        plan += [row(runs[0]), row(runs[1], cannot_run=why), row(runs[2])]
        records += [outcome(runs[0], 50.0 + seed / 10, 1.0), outcome(runs[2], 40.0, 1.0)]
    found = only(with_ladders(campaign(tmp_path, plan, records), LADDER))
    assert SkippedRung(MIDDLE, "impossible", why) in found.skipped
    assert [(step.above, step.below) for step in found.steps] == [(START, END)] and found.whole is None
    assert found.steps[0].seconds.mean == pytest.approx(10.2)


def test_a_ladder_without_its_last_rung_says_so(tmp_path: Path) -> None:
    rungs = [{"label": stack.upper(), "when": {"stack": stack}} for stack in ("a", "b", "c", "d")]
    for lacking, mark in (("", "all of it: A"), ("d", "all that was measured: A")):
        plan, records = [], []
        for seed in (1, 2):
            for stack, seconds in (("a", 50.0), ("b", 45.0), ("c", 40.0), ("d", 30.0)):
                one = specification(stack, "before", seed)
                plan.append(row(one, cannot_run="It is not here." if stack == lacking else None))
                records += [] if stack == lacking else [outcome(one, seconds, 1.0)]
        made = campaign(tmp_path / f"lacks{lacking}", plan, records)
        found = only(with_ladders(made, {"name": "L", "rungs": rungs}))
        assert ladders_table([found]).texts[-1][1] == mark
        assert found.complete == (not lacking)
        # Of the last rung that was measured.
        assert found.whole is not None and found.whole.percent is not None
        assert found.whole.percent.mean == pytest.approx(25.0 if lacking else 20 / 30 * 100)


def test_a_waterfall_ends_at_its_last_rung_though_a_rung_lacks_a_seed(tmp_path: Path) -> None:
    made = ladder(tmp_path, seeds=5, tokenizing_s=6.0, stack_s=2.0, noise_s=0.1)
    remarks = ladders_table([only(made)]).after
    lost = specification("spark", "in_loop", 5)
    shutil.rmtree(made.folder / lost.run_id)
    found = only(made)
    assert [step.seconds.n for step in found.steps] == [4, 5]
    figure = Figure()
    draw_waterfalls(figure, [found])
    whole, tokenising, stack = (bar for bar in figure.axes[0].patches if isinstance(bar, Rectangle))
    # Not 6.5, although the machine drifts by 3 s per seed.
    assert whole.get_width() == pytest.approx(8.0, abs=0.2)
    assert tokenising.get_x() == pytest.approx(whole.get_width())
    assert stack.get_x() + stack.get_width() == pytest.approx(0.0)
    # Each interval is that of its step, and stands where the step's seconds are.
    points = [each for each in figure.axes[1].containers if isinstance(each, ErrorbarContainer)]
    for point, step in zip(points, found.steps, strict=True):
        (segment,) = point.lines[2][0].get_segments()
        assert [x for x, _ in segment] == pytest.approx([step.seconds.low, step.seconds.high])
    *others, seeds = ladders_table([found]).after
    assert others == remarks and "same seeds" in seeds


def test_ladders_are_climbed_for_each_number_of_workers(tmp_path: Path) -> None:
    plan, records = [], []
    for workers, cost in ((1, 3.0), (2, 5.0)):
        for seed in (1, 2):
            for stack, seconds in (("spark", 40.0 + cost), ("ddp", 40.0)):
                one = specification(stack, "before", seed, workers)
                plan.append(row(one))
                records.append(outcome(one, seconds, 1.0))
    found = waterfalls(figures_of(with_ladders(campaign(tmp_path, plan, records), LADDER)))
    assert [ladder_name(each) for each in found] == [
        "Spark: 1 worker, 2 epochs",
        "Spark: 2 workers, 2 epochs",
    ]
    assert [each.steps[0].seconds.mean for each in found] == pytest.approx([3.0, 5.0])
    assert SkippedRung(START, "no such run") in found[0].skipped


def test_nothing_measured_is_no_ladder_yet(tmp_path: Path) -> None:
    made = with_ladders(campaign(tmp_path, [row(specification("ddp", "before", 1))], []), LADDER)
    assert waterfalls(figures_of(made)) == []
    plan = [row(specification(stack, "before", 1)) for stack in ("spark", "ddp")]
    found = only(with_ladders(campaign(tmp_path / "more", plan, []), LADDER))
    assert not found.steps and SkippedRung(END, "not yet") in found.skipped
    assert write_report(with_ladders(campaign(tmp_path / "last", plan, []), LADDER))


def test_the_summary_says_which_steps_are_certain(tmp_path: Path) -> None:
    analysis = analyse(ladder(tmp_path, seeds=4, tokenizing_s=8.0, stack_s=0.0, noise_s=0.5))
    seconds = analysis.waterfalls[0].steps[0].seconds
    excluded, said = conclusions(analysis)
    assert re.fullmatch(
        r"With 2 workers spark adds .* ms to a step; .* \(\+120\.2 ms .*\) is excluded here\.", excluded
    )
    assert said == (
        f'Among the ladders\' steps, Spark: 2 workers, 2 epochs: "{START}" takes {seconds.low:.2f} to '
        f'{seconds.high:.2f} s longer than "{MIDDLE}"; 1 of 2 can\'t tell.'
    )
    less = analyse(ladder(tmp_path / "less", seeds=5, tokenizing_s=-4.0, stack_s=0.0, noise_s=0.1))
    saved = less.waterfalls[0].steps[0].seconds
    assert saved.low is not None and saved.high is not None and -5.0 < saved.low < saved.high < -3.0
    _, said = conclusions(less)
    assert START in said and f'less than "{MIDDLE}"' in said
    assert f"{-saved.high:.2f} to {-saved.low:.2f}" in said


def test_the_report_shows_the_ladder_and_is_the_same_again(tmp_path: Path) -> None:
    written = []
    for folder in ("one", "two"):
        made = ladder(tmp_path / folder, seeds=5, tokenizing_s=6.0, stack_s=2.0, noise_s=0.1)
        written.append({path.name: path.read_bytes() for path in write_report(made)})
    assert written[0] == written[1]
    assert {"why.png", "why.svg"} <= set(written[0])
    markdown = written[0]["report.md"].decode()
    assert "## Why" in markdown and "plots/why.svg" in markdown
    table = tables(made)["Why"]
    (remark,) = table.after
    assert "more threads" in remark and f'"{START}"' in remark and f"- {remark}\n" in markdown
    assert not analyse(made).published  # left out of campaigns with ladders
    page = written[0]["report.html"].decode()
    assert "data +6.00" in page and table.texts[-1][1] in page and table.texts[-1][1] != START
    rows = csv.read_csv(tmp_path / "one" / "made" / "20261121T114500Z" / "figures.csv").to_pylist()
    why = {each["quantity"]: each for each in rows if each["section"] == "why"}
    first = why[f"Spark: {START} > {MIDDLE}, s"]
    assert first["low"] < 6.0 < first["high"] and (first["runs"], first["workers"]) == (5, 2)
    assert why[f"Spark: {START} > {MIDDLE}, data, s"]["value"] == pytest.approx(6.0)
    assert f"Spark: {START} > {END}, %" in why


def test_a_campaign_without_ladders_has_no_such_table(tmp_path: Path) -> None:
    made = with_ladders(ladder(tmp_path, seeds=2, tokenizing_s=6.0, stack_s=2.0, noise_s=0.1))
    assert not analyse(made).waterfalls and "Why" not in tables(made)
