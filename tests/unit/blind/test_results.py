"""The page on hidden causes says what its table of trials holds."""

from __future__ import annotations

from itertools import product

from experiments.util.paths import REPOSITORY
from tests.blind.faults import draw, faults_of
from tests.blind.kept import as_table, counted, kept

WHY = REPOSITORY / "docs" / "why"
ROWS = kept(WHY / "hidden-causes.csv")


def test_every_fault_was_hidden_once_with_each_of_three_seeds() -> None:
    assert {row.job for row in ROWS} == {"simulated"}
    assert sorted((row.seed, row.fault) for row in ROWS) == sorted(product((1, 2, 3), faults_of("simulated")))


def test_each_plan_is_the_one_that_its_seed_draws() -> None:
    for row in ROWS:
        plan = draw(row.seed, "simulated", row.fault)
        drawn = (plan.answer, len(plan.factors), plan.blocks, plan.floors)
        assert (row.answer, row.equalised, row.blocks, row.floors) == drawn


def test_at_least_nine_of_ten_are_named_and_at_most_one_is_named_wrongly() -> None:
    right = [row for row in ROWS if row.right == "yes"]
    wrong = [row for row in ROWS if row.named and row.named != row.answer]

    assert len(right) >= 0.9 * len(ROWS)
    assert len(wrong) <= 1


def test_the_page_shows_the_table() -> None:
    page = (WHY / "hidden-causes.md").read_text(encoding="utf-8")

    assert as_table(ROWS) in page
    assert counted(ROWS) in " ".join(page.split())
