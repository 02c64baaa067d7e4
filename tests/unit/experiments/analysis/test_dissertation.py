"""The dissertation's figures: its derived values are recomputed, and differ only where we say so."""

from __future__ import annotations

import pytest

from experiments.analysis.dissertation import Comparison, Linearity, dissertation
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
    assert own.per_epoch - ddp.per_epoch == pytest.approx(row.more_s_per_epoch, abs=0.0051)
    assert (overhead - 1) * 100 == pytest.approx(row.more_percent, abs=0.51)


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
