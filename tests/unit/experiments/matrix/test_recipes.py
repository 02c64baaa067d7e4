"""Recipes: the designs, what they are short for, and the messages about those that are not valid."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from experiments.matrix.loading import load_matrix
from experiments.matrix.model import Matrix
from experiments.util.errors import UserError
from tests.unit.experiments.made_up_workplace import MATRIX

RECIPES = """
recipes:
  plain: {reporting: epoch, printed_lines: 0, evaluation: sharded}
  stock: {reporting: step, printed_lines: 100}
  third: {evaluation: none}
"""
FACTORS = ("reporting", "printed_lines", "evaluation")


def load(folder: Path, more: str, text: str = MATRIX) -> Matrix:
    (folder / "small.yml").write_text(text + more, encoding="utf-8")
    return load_matrix(str(folder / "small.yml"))


def runs_of(matrix: Matrix, *factors: str) -> list[tuple[object, ...]]:
    """The values of the factors in the runs of the first stack on one worker."""
    return [
        tuple(each[factor] for factor in factors)
        for each in matrix.combinations()
        if (each["stack"], each["workers"]) == ("plain", 1)
    ]


def test_each_recipe_is_run_as_it_is_written_on_every_stack(tmp_path: Path) -> None:
    matrix = load(tmp_path, RECIPES)
    assert list(matrix.axes) == ["stack", *FACTORS, "workers", "epochs", "seed"]
    expected = [("epoch", 0, "sharded"), ("step", 100, "sharded"), ("epoch", 0, "none")]
    assert runs_of(matrix, *FACTORS) == expected
    assert len(matrix.combinations()) == 3 * len(load(tmp_path, "").combinations())


def test_one_at_a_time_and_full_are_made_of_the_values_that_differ(tmp_path: Path) -> None:
    one = load(tmp_path, f"{RECIPES}design: one_at_a_time\n")
    expected = [
        ("epoch", 0, "sharded"),
        ("step", 0, "sharded"),
        ("epoch", 100, "sharded"),
        ("epoch", 0, "none"),
    ]
    assert runs_of(one, *FACTORS) == expected
    full = load(tmp_path, f"{RECIPES}design: full\n")
    every = itertools.product(("epoch", "step"), (0, 100), ("sharded", "none"))
    assert sorted(runs_of(full, *FACTORS), key=str) == sorted(every, key=str)


@pytest.mark.parametrize(("number", "factors"), [(4, 3), (8, 4), (8, 7), (16, 8)])
def test_a_fraction_is_balanced_and_tells_its_factors_apart(
    tmp_path: Path, number: int, factors: int
) -> None:
    names = ["reporting", "printed_lines", "evaluation", "allocator", "loader_workers", "data_place"]
    names = [*names, "save", "gradient_accumulation"][:factors]
    values = [
        "epoch step",
        "0 1",
        "sharded none",
        "tuned stock",
        "null 4",
        "local shared",
        "none last",
        "1 2",
    ]
    pairs = [each.split() for each in values[:factors]]
    recipes = ""
    for at, recipe in enumerate(("plain", "stock")):
        fields = (f"{name}: {pair[at]}" for name, pair in zip(names, pairs, strict=True))
        recipes += f"  {recipe}: {{{', '.join(fields)}}}\n"
    found = runs_of(load(tmp_path, f"recipes:\n{recipes}design: {number}\n"), *names)
    first = found[0]
    signs = np.array(
        [[1 if value == usual else -1 for value, usual in zip(run, first, strict=True)] for run in found]
    )
    assert len(found) == number and (signs[0] == 1).all()  # the baseline is one of them
    with_constant = np.column_stack([np.ones(number), signs])
    assert (with_constant.T @ with_constant == number * np.eye(factors + 1)).all()
    if factors <= number // 2:  # resolution IV
        products = [signs[:, a] * signs[:, b] for a, b in itertools.combinations(range(factors), 2)]
        assert all((signs.T @ product == 0).all() for product in products)


def test_a_row_has_the_first_recipes_values_unless_it_says_otherwise(tmp_path: Path) -> None:
    row = "rows:\n  - {stack: plain, workers: 1, epochs: 3, seed: 9, printed_lines: 7}\n"
    (added,) = [run for run in load(tmp_path, RECIPES + row).combinations() if run["seed"] == 9]
    assert (added["printed_lines"], added["reporting"], added["evaluation"]) == (7, "epoch", "sharded")


def test_what_differs_may_be_a_list(tmp_path: Path) -> None:
    more = "recipes: {plain: {metrics: []}, judged: {metrics: [f1]}}\n"
    assert runs_of(load(tmp_path, more), "metrics") == [([],), (["f1"],)]


@pytest.mark.parametrize(
    ("more", "line", "said"),
    [
        ("recipes: {a: {reporting: step}}", 12, "recipes has two names or more, each with"),
        ("recipes: [a, b]", 12, "recipes has two names or more"),
        ("design: full", 12, "design says what is run of recipes; give two or more."),
        (
            f"{RECIPES}design: some",
            16,
            "design is as_written, one_at_a_time, full, or a number of combinations",
        ),
        (f"{RECIPES}design: 4", 16, "a number of combinations is for two recipes"),
        (
            "recipes: {a: {seed: 1}, b: {seed: 2}}",
            12,
            "seed is the same in every recipe; leave it to the axes.",
        ),
        (
            "recipes: {a: {warmup_steps: 1}, b: {warmup_steps: 2}}",
            12,
            "warmup_steps is under recipes and defaults",
        ),
        (
            "recipes: {a: {}, b: {reporting: step}}",
            12,
            "the first recipe, a, has no reporting; give it one there.",
        ),
        (
            "recipes: {a: {reporting: step}, b: {}}",
            12,
            "no recipe differs in reporting; put it under defaults.",
        ),
        (f"{RECIPES}  again: {{evaluation: none}}", 16, "again is the same as third; keep one of them."),
        (
            "recipes: {a: {save: none, trace: null}, b: {save: last}}\ndesign: 6",
            12,
            "no recipe differs in trace",
        ),
        (
            "recipes: {a: {save: none}, b: {save: last}}\ndesign: 6",
            13,
            "a fraction has 4, 8, 16, … combinations",
        ),
        (
            "recipes: {a: {save: none}, b: {save: last}}\ndesign: 4",
            13,
            "4 combinations can't tell 1 factors apart",
        ),
        (
            f"{RECIPES}  fourth:\n    reporting: never",
            17,
            "conditions.reporting: input should be 'epoch' or 'step'",
        ),
        (
            "recipes:\n  a: {reprting: step}\n  b: {reprting: epoch}",
            13,
            "recipes.reprting is not a field of the work",
        ),
    ],
)
def test_a_fault_is_one_sentence_with_its_line(tmp_path: Path, more: str, line: int, said: str) -> None:
    with pytest.raises(UserError) as error:
        load(tmp_path, f"{more.lstrip()}\n")
    assert f"small.yml, line {line}" in str(error.value) and said in str(error.value)


def test_the_workers_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 8: a matrix with recipes names its numbers of workers"):
        load(tmp_path, RECIPES, MATRIX.replace("workers: [1, 2]", "workers: all"))
