"""The dissertation's figures: its derived values are recomputed, and differ only where we say so."""

from __future__ import annotations

import pytest

from experiments.analysis.dissertation import Comparison, Linearity, dissertation
from experiments.analysis.dissertation_figures import PublishedFigure
from experiments.analysis.dissertation_tables import filled_tables
from experiments.cluster.stack_facts import OFFERS, read_facts
from experiments.util.paths import REPOSITORY

REFERENCE = dissertation()


def test_every_cell_is_there() -> None:
    cells = {(run.stack, run.workers, run.epochs) for run in REFERENCE.runs}
    assert cells == {(s, w, e) for s in ("ddp", "determined", "spark") for w in (1, 2) for e in (20, 100)}


@pytest.mark.parametrize("row", REFERENCE.printed.linearity, ids=lambda row: f"{row.stack}-{row.workers}")
def test_table_5_4_follows_from_the_times(row: Linearity) -> None:
    long, short = (REFERENCE.run(row.stack, row.workers, epochs) for epochs in (100, 20))
    assert long is not None and short is not None
    # The only exception is listed among the contradictions.
    wrong = (row.stack, row.workers) == ("ddp", 1)
    assert (round(long.per_epoch, 2) != row.per_epoch_100) == wrong
    assert short.per_epoch == pytest.approx(row.per_epoch_20, abs=0.0051)
    assert long.per_epoch / short.per_epoch == pytest.approx(row.ratio, abs=0.0051)


@pytest.mark.parametrize("row", REFERENCE.printed.comparison, ids=lambda row: row.stack)
def test_tables_5_7_to_5_9_follow_from_the_times(row: Comparison) -> None:
    overhead, speed_up = REFERENCE.overhead(row.stack, 2), REFERENCE.speed_up(row.stack, 2)
    assert overhead == pytest.approx(row.overhead, abs=0.0051)
    assert speed_up == pytest.approx(row.speed_up, abs=0.0051)
    assert speed_up is not None and overhead is not None
    assert speed_up / 2 * 100 == pytest.approx(row.efficiency, abs=0.51)
    own, ddp = REFERENCE.run(row.stack, 2, 20), REFERENCE.run("ddp", 2, 20)
    assert own is not None and ddp is not None
    # DDP's own row has dashes.
    assert (row.more_s_per_epoch is None) == (row.more_percent is None) == (row.stack == "ddp")
    assert own.per_epoch - ddp.per_epoch == pytest.approx(row.more_s_per_epoch or 0.0, abs=0.0051)
    assert (overhead - 1) * 100 == pytest.approx(row.more_percent or 0.0, abs=0.51)


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        ("5.1", "677.10 0.8284 498.99 0.8259 3399.48 0.8273 2510.63 0.8314"),
        ("5.2", "833.14 0.8279 605.56 0.8289 3924.99 0.8358 2822.77 0.8228"),
        ("5.3", "2520.89 0.8249 1431.39 0.8236 12487.48 0.8290 7203.63 0.8194"),
        (
            "5.4",
            "33.86 34.00 1.00 24.95 25.11 1.01 41.66 39.25 0.94 30.28 28.23 0.93 "
            "126.04 124.87 0.99 71.57 72.04 1.01",
        ),
        ("5.5", "0.8284 0.8259 0.8279 0.8289 0.8249 0.8236"),
        ("5.6", "0.8273 0.8314 0.8358 0.8228 0.8290 0.8194"),
        ("5.7", "677.10 498.99 1.00 833.14 605.56 1.21 2520.89 1431.39 2.87"),
        ("5.8", "1.36 68 1.38 69 1.76 88"),
        ("5.9", "24.95 - - 30.28 5.33 21 71.57 46.62 187"),
    ],
)
def test_every_table_has_its_figures_row_by_row_as_printed(number: str, printed: str) -> None:
    ours = PublishedFigure(("5.1",), "ddp", 1, {}, (2,), (20,), "seconds of training", 50.0, 677.1, 1, 5)
    (table,) = [each for each in filled_tables([ours], REFERENCE) if each.printed.number == number]
    found = [figure.printed for row in table.rows for figure in row.figures]
    assert found == [None if each == "-" else float(each) for each in printed.split()]


def test_without_any_figure_of_ours_there_are_no_tables() -> None:
    assert filled_tables([], REFERENCE) == []


def test_the_contradictions_follow_from_the_figures() -> None:
    said = {each.where: each.but for each in REFERENCE.contradictions}
    ddp = REFERENCE.run("ddp", 1, 100)
    assert ddp is not None and f"{ddp.per_epoch:.2f}" == "33.99" and "33.99" in said["table 5.4"]
    less = [1 - 1 / (REFERENCE.overhead(stack, 1) or 0) for stack in ("determined", "spark")]
    assert [f"{share:.1%}" for share in less] == ["18.7%", "73.1%"]
    falls = [f"{REFERENCE.overhead('determined', 2, epochs):.2f}" for epochs in (20, 100)]
    assert falls == ["1.21", "1.12"]
    # 782 and 391 steps per epoch.
    assert f"{500 / (782 * 20):.1%}" == "3.2%" and f"{500 / (391 * 20):.1%}" == "6.4%"


def test_tables_5_1_to_5_3_are_not_in_the_order_that_section_5_3_1_gives() -> None:
    said = {each.where: each.but for each in REFERENCE.contradictions}["section 5.3.1"]
    by_table = {run.table: run.stack for run in REFERENCE.runs}
    assert by_table["5.2"] == "determined" and "table 5.2 is Determined's" in said
    assert by_table["5.3"] == "spark" and "table 5.3 Spark's" in said


def test_the_answers_follow_from_the_figures() -> None:
    time = next(each for each in REFERENCE.questions if each.topic == "time")
    one, two = (REFERENCE.run("ddp", workers, 20) for workers in (1, 2))
    assert one is not None and f"{one.seconds:.0f} s with one GPU" in time.answer
    assert two is not None and f"{two.seconds:.0f} s with two" in time.answer
    assert f"{(REFERENCE.overhead('determined', 2) or 0) - 1:.0%}".replace("%", " %") in time.answer
    fastest = min(REFERENCE.runs, key=lambda run: (run.workers, run.epochs, run.seconds))
    assert [fastest.stack] == time.stacks
    assert [each.section for each in REFERENCE.questions] == ["5.6.1", "5.6.2", "5.6.3"]


def test_tables_5_10_and_5_11_have_a_cell_for_every_stack() -> None:
    stacks = set(REFERENCE.stacks)
    assert all(set(each.cells) == stacks for each in REFERENCE.aspects)
    assert list(REFERENCE.features) == list(OFFERS)
    assert all(set(cells) == stacks for cells in REFERENCE.features.values())


@pytest.mark.parametrize("stack", REFERENCE.stacks)
def test_a_shipped_stack_says_what_was_tried_of_what_table_5_11_names(stack: str) -> None:
    facts = read_facts(REPOSITORY / "roles" / stack)
    assert facts is not None and facts.using.elsewhere is not None
    for feature, cells in REFERENCE.features.items():
        names, tried = cells[stack].names, getattr(facts.offers, feature).tried
        assert (tried is not None) == bool(names), feature
        assert set(tried or ()) <= set(names), feature


def test_what_was_not_measured_is_none() -> None:
    assert REFERENCE.run("ddp", 3, 20) is None
    assert REFERENCE.overhead("horovod", 2) is None
    assert REFERENCE.speed_up("ddp", 4) is None
