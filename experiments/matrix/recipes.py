"""Recipes: ways to launch and feed a training, and the design that says which of their mixtures are run.

In a matrix's file `recipes` gives each a name and the values of fields. The first one is the baseline; the
others name what differs from it. A field in which recipes differ is a factor. `design` says what is run, on
every stack and with every other axis, so that each factor's cost and its interaction with the stack can be
told. All of this is short for axes and rows, which is what a campaign knows.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.matrix.workers import ALL
from experiments.util.numbered_yaml import Place

NOT_IN_RECIPES: Final = ("stack", "workers", "epochs", "seed", "repetition")
"""What every recipe is run with."""

Named = Literal["as_written", "one_at_a_time", "full"]

Levels = dict[str, list[Any]]
"""The values of each factor, the baseline's first."""


class RecipeError(Exception):
    """A fault in a matrix's recipes."""

    def __init__(self, place: Place, sentence: str) -> None:
        super().__init__(sentence)
        self.place = place


class Recipes(BaseModel):
    """The two parts of a matrix's file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    recipes: Annotated[dict[str, dict[str, Any]], Field(min_length=2)]
    # A number: so many combinations of two recipes' values, a regular fraction of all.
    design: Named | Annotated[int, Field(ge=4)] = "as_written"


def expanded(content: Mapping[str, Any]) -> dict[str, Any]:
    """A matrix's content, with axes and rows in place of `recipes` and `design`.

    Rows of the file stay the first ones. A factor that one leaves out has the baseline's value there.

    Raises:
        RecipeError: they are not valid, or contradict the axes or the defaults.
    """
    others = {name: part for name, part in content.items() if name not in Recipes.model_fields}
    axes, rows = content.get("axes"), content.get("rows", [])
    if not isinstance(axes, dict) or not isinstance(rows, list):
        return others  # which is a fault of its own
    given = _valid({name: content[name] for name in Recipes.model_fields if name in content})
    levels = _levels(given, axes, content.get("defaults"))
    if axes.get("workers") in (ALL, [ALL]):
        raise RecipeError(("axes", "workers"), "a matrix with recipes names its numbers of workers.")
    first = {factor: values[0] for factor, values in levels.items()}
    made = [
        {**axes, **{factor: [value] for factor, value in combination.items()}}
        for combination in _combinations(given, levels)
        if combination != first
    ]
    filled = [{**first, **row} if isinstance(row, dict) else row for row in rows]
    stack = {"stack": axes["stack"]} if "stack" in axes else {}
    factors = {factor: [value] for factor, value in first.items()}
    return others | {"axes": {**stack, **factors, **axes}, "rows": [*filled, *made]}


def _valid(parts: dict[str, Any]) -> Recipes:
    try:
        return Recipes.model_validate(parts)
    except ValidationError as error:
        if "recipes" not in parts:
            raise RecipeError(("design",), "design says what is run of recipes; give two or more.") from error
        place = error.errors(include_url=False)[0]["loc"]
        if place[0] == "design":
            known = ", ".join(get_args(Named))
            said = f"design is {known}, or a number of combinations, from 4 on; not {parts['design']!r}."
        else:
            said = "recipes has two names or more, each with fields, as in stock: {allocator: stock}."
        raise RecipeError(place, said) from error


def _levels(given: Recipes, axes: Mapping[str, Any], defaults: Any) -> Levels:
    """The factors, in the order in which the recipes name them."""
    (baseline, first), *others = given.recipes.items()
    for name, fields in given.recipes.items():
        for field in fields:
            place = ("recipes", name, field)
            if field in NOT_IN_RECIPES:
                raise RecipeError(place, f"{field} is the same in every recipe; leave it to the axes.")
            where = [
                part
                for part, fixed in (("axes", axes), ("defaults", defaults))
                if isinstance(fixed, Mapping) and field in fixed
            ]
            if where:
                raise RecipeError(place, f"{field} is under recipes and {where[0]}; keep one.")
            if field not in first:
                raise RecipeError(place, f"the first recipe, {baseline}, has no {field}; give it one there.")
    levels: Levels = {}
    for field, value in first.items():
        found = {_text(each): each for each in (value, *(fields.get(field, value) for _, fields in others))}
        if len(found) == 1:
            raise RecipeError(
                ("recipes", baseline, field), f"no recipe differs in {field}; put it under defaults."
            )
        levels[field] = list(found.values())
    seen: dict[str, str] = {}
    for name, fields in given.recipes.items():
        double = seen.setdefault(_text(first | fields), name)
        if double != name:
            raise RecipeError(("recipes", name), f"{name} is the same as {double}; keep one of them.")
    return levels


def _combinations(given: Recipes, levels: Levels) -> Iterator[dict[str, Any]]:
    """The combinations of the factors' values that are run, each once."""
    first, *others = given.recipes.values()
    if given.design == "as_written":
        yield from ({**first, **fields} for fields in (first, *others))
    elif given.design == "one_at_a_time":
        yield first
        for factor, (_, *values) in levels.items():
            yield from ({**first, factor: value} for value in values)
    elif given.design == "full":
        for chosen in itertools.product(*levels.values()):
            yield dict(zip(levels, chosen, strict=True))
    else:
        yield from _fraction(given, levels, given.design)


def _fraction(given: Recipes, levels: Levels, number: int) -> Iterator[dict[str, Any]]:
    """A regular fraction of all combinations, among them the baseline (Box and Hunter, 1961).

    Each factor is a column of the two-level design, an XOR of the run's bits. Columns of an odd number of
    bits come first: as long as they suffice, no main effect is the product of two others (resolution IV).
    """
    place: Place = ("design",)
    if len(given.recipes) != 2:
        raise RecipeError(place, "a number of combinations is for two recipes; take one_at_a_time or full.")
    if number & (number - 1):
        raise RecipeError(place, f"a fraction has 4, 8, 16, … combinations, not {number}.")
    if not len(levels) < number < 2 ** len(levels):
        raise RecipeError(
            place,
            f"{number} combinations can't tell {len(levels)} factors apart; take more than {len(levels)} and "
            f"fewer than all {2 ** len(levels)}, or design: full.",
        )
    columns = sorted(range(1, number), key=lambda each: (each.bit_count() % 2 == 0, each.bit_count(), each))
    for run in range(number):
        yield {
            factor: values[(run & column).bit_count() % 2]
            for (factor, values), column in zip(levels.items(), columns, strict=False)
        }


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
