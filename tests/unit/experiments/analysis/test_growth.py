"""How steps grow: the curves and the model of a campaign, and campaigns that have none."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.figures import figures_of
from experiments.analysis.growth import Growth, growth, link_gbit
from experiments.analysis.scaling_model import ScalingModel, TooFew
from experiments.campaign.campaign import Campaign
from experiments.records.rank_use import RankUse
from experiments.report.export_rows import export_rows
from experiments.report.plots import drawings_of, render, render_narrow
from experiments.report.sections.growth import growth_table
from experiments.report.sections.minute import in_one_minute
from experiments.report.writer import SHOWN, report_tables
from tests.unit.experiments.made_up_growth import COSTS, grown, step_ms
from tests.unit.experiments.made_up_records import quick, with_batches
from tests.unit.experiments.made_up_use import rank_use
from tests.unit.experiments.report.drawn import rows
from training.spec import RunSpec


def only(made: Campaign) -> Growth:
    (found,) = growth(figures_of(made))
    return found


def changed(specification: RunSpec, **work: Any) -> RunSpec:
    fields = specification.model_dump()
    return RunSpec.model_validate(fields | {"work": fields["work"] | work})


def test_what_each_thing_costs_is_found_in_the_steps(tmp_path: Path) -> None:
    found = only(grown(tmp_path))
    assert isinstance(found.model, ScalingModel)
    assert (found.stack, found.settings, found.model.cells, found.runs) == ("ddp", {}, 20, 60)
    for term, cost in found.model.costs.items():
        assert cost.low < COSTS[term] < cost.high, term
    assert found.model.held_out is not None and found.model.held_out.worst < 0.03


def test_each_quantity_that_varies_by_itself_has_a_curve(tmp_path: Path) -> None:
    found = only(grown(tmp_path, noise=0.0))
    values = {curve.quantity: [x for x, _ in curve.points] for curve in found.curves}
    model = values.pop("model")
    assert values == {
        "length": [32, 64, 128, 256, 512],
        "batch": [8, 16, 32, 64],
        "vocabulary": [2000, 8000, 30522],
        "ranks": [1, 2],
    }
    assert len(model) == 4 and model == sorted(model)
    for _, point in (each for curve in found.curves for each in curve.points):
        taken = step_ms(point.cell.timed[0].specification)
        assert point.step_ms == pytest.approx(taken) and point.model_ms == pytest.approx(taken)


def test_more_workers_and_other_links_are_predicted(tmp_path: Path) -> None:
    found = only(grown(tmp_path, noise=0.0))
    base = found.curves[0].points[2][1].cell.timed[0].specification
    assert [(each.workers, each.link_gbit) for each in found.predictions[:5]] == [
        (4, None), (4, 1.0), (4, 10.0), (4, 100.0), (8, None),
    ]  # fmt: skip
    assert len(found.predictions) == 12 and found.undetermined == []
    assert all(each.beyond for each in found.predictions)
    alone = step_ms(base)
    for workers, at in ((4, 1), (64, 9)):
        conditions = base.conditions.model_copy(update={"link_rate": "1gbit"})
        there = changed(
            base, workers=workers, batch_per_worker=16
        )  # 64 batches of 32 are more than there are
        there = there.model_copy(
            update={
                "work": there.work.model_copy(update={"batch_per_worker": 32}),
                "conditions": conditions,
            }
        )
        assert found.predictions[at].step_ms.value == pytest.approx(step_ms(there))
        assert found.predictions[at].efficiency == pytest.approx(alone / step_ms(there))


def test_in_one_minute_says_how_well_the_model_fits_and_what_follows(tmp_path: Path) -> None:
    made = analyse(grown(tmp_path / "exact", noise=0.0))
    answers = {each.question: each.text for each in in_one_minute(made)}
    said = answers["How does a step grow?"]
    assert re.match(
        r"ddp: a model fitted to the steps of 20 cells misses one that is held out by 0\.0 % \(median\), and "
        r"by 0\.0 % at worst\. By it a step would take \d+ ms \(\d+ to \d+\) with 4 workers, .* and \d+ ms "
        r"\(.*\) with 64 workers, beyond all cells\.$",
        said,
    )
    (alone,) = made.growth
    assert f"would take {alone.predictions[0].step_ms.value:.0f} ms " in said
    # Of many comparisons it is counted in how many a difference is shown.
    noisy = {each.question: each.text for each in in_one_minute(analyse(grown(tmp_path / "noisy")))}
    assert re.match(
        r"Among the comparisons of settings, a difference is shown in \d+ of \d+ "
        r"\(\d+ of 4 of data\.max_length, ",
        noisy["How much slower in training?"],
    )
    assert "How does a step grow?" not in {
        each.question for each in in_one_minute(analyse(quick(tmp_path / "quick")))
    }


def test_without_a_second_link_rate_nothing_is_said_of_links(tmp_path: Path) -> None:
    found = only(grown(tmp_path, keep=lambda axes: axes["link_rate"] is None))
    assert [each.workers for each in found.predictions] == [4, 8, 64]
    assert len(found.undetermined) == 9
    table = growth_table([found])
    assert "ddp: no cell has any of these: a ms on the link." in table.after
    assert (
        "ddp: these cells don't tell what 4, 8 and 64 workers would take where the link is 1 Gbit/s, "
        "10 Gbit/s or 100 Gbit/s; it takes cells with several workers on links of two rates."
    ) in table.after


def test_with_one_worker_nothing_is_said_of_more(tmp_path: Path) -> None:
    found = only(grown(tmp_path, keep=lambda axes: axes["workers"] == 1))
    assert isinstance(found.model, ScalingModel) and found.predictions == []
    assert {curve.quantity for curve in found.curves} == {"length", "batch", "vocabulary", "model"}
    *_, said = growth_table([found]).after
    assert said.startswith(
        "ddp: these cells don't tell what more workers would take; it takes cells with two"
    )


def test_what_ranks_send_is_measured_where_there_is_no_arithmetic(tmp_path: Path) -> None:
    """Of touched rows: 500 MB in 40 steps, and nothing is said of ranks that would send other bytes."""

    def rows_only(one: RunSpec) -> RunSpec:
        return changed(one, gradient_sync="rows")

    found = only(
        grown(tmp_path / "measured", change=rows_only, use=RankUse.model_validate(rank_use()), steps=40)
    )
    assert isinstance(found.model, ScalingModel)
    assert found.predictions == [] and len(found.undetermined) == 12
    assert only(grown(tmp_path / "not", change=rows_only)).model == "bytes"


def test_a_model_is_refused_with_the_reason(tmp_path: Path) -> None:
    def first(axes: Any) -> bool:
        return bool(axes["seed"] == 1)

    few = only(grown(tmp_path / "few", keep=lambda axes: axes["data.max_length"] in (32, 64, 256)))
    assert few.model == TooFew(cells=3, terms=3)
    (said,) = growth_table([few]).after
    assert said == (
        "ddp: no model is fitted: 3 cells can't tell 3 costs and how far off they are; it takes 5 or more, "
        "so vary more quantities or values."
    )
    assert only(grown(tmp_path / "parameters", keep=first, parameters=None)).model == "parameters"
    packed = only(grown(tmp_path / "padding", keep=first, change=lambda one: changed(one, padding="none")))
    assert packed.model == "computed" and packed.curves[0].points[0][1].model_ms is None
    table = growth_table([packed])
    assert not table.rows and len(table.parts) == 1
    assert table.after[0].startswith("ddp: no model is fitted: what a step computes is not known")


def test_a_step_is_the_slowest_ranks_and_the_median_of_the_runs(tmp_path: Path) -> None:
    made = grown(tmp_path, noise=0.1)
    found = only(made)
    length = next(curve for curve in found.curves if curve.quantity == "length")
    for _, point in length.points:
        medians = [
            max(rank.step_times.median_ms for rank in record.ranks if rank.step_times)
            for record in point.cell.timed
        ]
        assert point.runs_ms == medians and point.step_ms == sorted(medians)[1]


def test_campaigns_that_do_not_vary_the_work_have_no_such_section(tmp_path: Path) -> None:
    def only_workers(axes: Any) -> bool:
        return axes["link_rate"] is None and _is_base(axes)

    def lengths(axes: Any) -> bool:
        return bool(axes["data.max_length"] != 128 and axes["seed"] == 1)

    for made in (
        quick(tmp_path / "quick"),
        with_batches(tmp_path / "old", [("ddp", 1, 2, batch, [30.0]) for batch in (8, 16, 32)]),
        grown(tmp_path / "workers", keep=only_workers),
        grown(tmp_path / "simulated", keep=lengths, change=lambda one: changed(one, simulated_step_ms=40.0)),
    ):
        analysis = analyse(made)
        assert analysis.growth == []
        assert "How cost grows" not in {table.title for table in report_tables(analysis)}
        assert "growth" not in drawings_of(analysis)
        assert not [row for row in export_rows(analysis) if row["section"] == "growth"]


def _is_base(axes: Any) -> bool:
    at = (axes["data.max_length"], axes["batch_per_worker"], axes["data.vocabulary"], axes["model"]["hidden"])
    return at == (128, 32, 30522, 128) and axes["model"]["layers"] == 2


def test_two_numbers_of_workers_and_two_of_something_else_are_enough(tmp_path: Path) -> None:
    def few(axes: Any) -> bool:
        other = axes["data.vocabulary"] == 2000 and axes["workers"] == 1
        return axes["link_rate"] is None and (_is_base(axes) or other)

    found = only(grown(tmp_path, keep=few))
    assert {curve.quantity for curve in found.curves} == {"vocabulary", "ranks"}
    assert isinstance(found.model, TooFew)


def test_the_report_has_the_section_the_plot_and_the_figures(tmp_path: Path) -> None:
    analysis = analyse(grown(tmp_path))
    table = next(table for table in report_tables(analysis) if table.title == "How cost grows")
    (costs,), (steps, predictions) = rows(table), table.parts
    assert costs["stack"] == "ddp" and costs["cells"] == "20" and costs["the worst"].endswith(" %")
    assert table.after == []
    assert len(rows(steps)) == 5 + 4 + 3 + 4 + 2
    last = rows(predictions)[-1]
    assert (last["workers"], last["link"]) == ("64", "100 Gbit/s")
    assert last["what that is"] == "extrapolation: beyond all cells"
    exported = [row for row in export_rows(analysis) if row["section"] == "growth"]
    assert len(exported) == 7 + 2 + 2 * 12
    assert {row["runs"] for row in exported} == {60}
    drawn = drawings_of(analysis)
    assert set(drawn) <= SHOWN.keys()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's, of a plot without room
        assert set(render("growth", drawn["growth"])) == {"growth.png", "growth.svg"}
        assert b"vocabulary" in render_narrow(drawn["growth"])


@pytest.mark.parametrize(
    ("rate", "gbit"),
    [("1gbit", 1.0), ("100mbit", 0.1), ("2.5gbit", 2.5), ("500kbit", 0.0005), ("fast", None), (None, None)],
)
def test_a_link_rate_is_read(rate: str | None, gbit: float | None) -> None:
    assert link_gbit(rate) == (None if gbit is None else pytest.approx(gbit))
