"""What each factor costs on each stack, and whether one stack pays more for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from experiments.analysis.factors import FactorEffect, Recipes
from experiments.analysis.statistics import Difference
from experiments.analysis.verdicts import sign
from experiments.report.formats import Format, Value
from experiments.report.names import value_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import counted, listed

TITLE: Final = "What each factor costs, by stack"
MS: Final = Format(2, signed=True)
ITSELF: Final = "the stack itself"


def factors_table(found: Sequence[Recipes], doubt: str = "") -> Table:
    """The stacks themselves, then every factor on both of two stacks, after a `doubt` about all of it."""
    baseline = found[0].baseline if found else ""
    words = ("stack", "factor", "value", "against", "what that is")
    return Table(
        title=TITLE,
        before=doubt
        + (
            "Milliseconds of train_s a step, evaluation included, over pairs of runs with the same seed. A "
            f"factor that costs every stack the same explains nothing of a ratio to {baseline}: that can be "
            "only what the stack adds by itself, with every factor at its first value, or what it pays more "
            "for a factor. In brackets are 95 % intervals that hold all at once for one stack, number of "
            "workers and number of epochs (Bonferroni), and the last column goes by them, and by the noise "
            "floor if there is one."
        ),
        columns=columns(
            *("stack", "workers", "epochs", "factor", "value", "against", "pairs"),
            *(f"on {baseline}, ms", "on the stack, ms", "more on the stack, ms", "what that is"),
            words=words,
        ),
        rows=[
            row for each in found for row in (_itself(each), *(_row(each, effect) for effect in each.effects))
        ],
        after=[remark for each in found for remark in _remarks(each)],
    )


def _itself(each: Recipes) -> list[Value | str]:
    alone = each.stack_alone
    found = sign(alone)
    return [
        each.other,
        Value(each.workers),
        Value(each.epochs),
        ITSELF,
        "",
        each.baseline,
        run_count(alone.n),
        "",
        "",
        _value(alone),
        ("within the noise" if sign(replace(alone, floor=None)) else "no difference is shown")
        if not found
        else f"it takes {'more' if found > 0 else 'less'} by itself",
    ]


def _row(each: Recipes, effect: FactorEffect) -> list[Value | str]:
    return [
        each.other,
        Value(each.workers),
        Value(each.epochs),
        effect.factor,
        value_text(effect.value),
        value_text(effect.first),
        run_count(effect.on_other.n),
        _value(effect.on_baseline),
        _value(effect.on_other),
        _value(effect.more_on_other),
        _what(each, effect),
    ]


def _what(each: Recipes, effect: FactorEffect) -> str:
    """What the intervals show of a factor, and no more."""
    if effect.more_on_other.p is None:
        return "too few pairs: nothing can be said"
    if more := sign(effect.more_on_other):
        return f"costs {each.other} {'more' if more > 0 else 'less'} than {each.baseline}"
    on = [sign(effect.on_baseline) or 0, sign(effect.on_other) or 0]
    if not any(on):
        beyond = (sign(replace(each, floor=None)) for each in (effect.on_baseline, effect.on_other))
        return "within the noise" if any(beyond) else "no effect is shown"
    if all(on):
        return f"{'costs' if on[0] > 0 else 'saves'} both; no difference between them is shown"
    stack = each.baseline if on[0] else each.other
    return f"{'costs' if sum(on) > 0 else 'saves'} {stack}; that it differs from the other is not shown"


def _value(found: Difference) -> Value:
    return Value(found.mean, MS, low=found.low, high=found.high)


def _remarks(each: Recipes) -> list[str]:
    where = f"{each.other}, {counted(each.workers, 'worker')}, {counted(each.epochs, 'epoch')}"
    whole = each.cells == each.of
    remarks = [] if whole else [f"{where}: {each.cells} of the {each.of} cells of a full factorial were run."]
    if each.seeds_left_out:
        left = counted(each.seeds_left_out, "seed")
        remarks.append(f"{where}: {left} left out, for want of runs or because of other cells.")
    if each.confounded:
        remarks.append(f"{where}: the runs can't tell apart, so it is left out: {listed(each.confounded)}.")
    return remarks
