"""What each factor costs on each stack, and whether one stack pays more for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from experiments.analysis.attribution import FEWEST, Measure
from experiments.analysis.factors import Costs, FactorEffect, Recipes
from experiments.analysis.statistics import Difference
from experiments.analysis.verdicts import sign
from experiments.report.formats import TENTHS, Format, Value, number, quantity
from experiments.report.names import value_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import counted, listed

TITLE: Final = "What each factor costs, by stack"
ONCE_TITLE: Final = "What each factor costs once, by stack"
ITSELF: Final = "the stack itself"
UNEXPLAINED: Final = f"unexplained: {ITSELF}"
FORMATS: Final[dict[Measure, Format]] = {
    "step_ms": Format(2, signed=True, unit=" ms a step"),
    "fixed_s": Format(2, signed=True, unit=" s"),
    "launch_s": Format(2, signed=True, unit=" s"),
}
MIXED: Final = "; mixed, see below"
ONCE: Final[dict[Measure, str]] = {
    "fixed_s": "in train_s, beyond the steps",
    "launch_s": "outside train_s",
}


def factors_table(found: Sequence[Recipes], doubt: str = "") -> Table:
    """The stacks themselves, then every factor on both of two stacks, after a `doubt` about all of it."""
    baseline = found[0].baseline if found else ""
    words = ("stack", "factor", "value", "against", "what that is")
    return Table(
        title=TITLE,
        before=doubt
        + (
            f"{_measured(found)}, over pairs of runs with the same seed. A "
            f"factor that costs every stack the same explains nothing of a ratio to {baseline}: that can be "
            "only what the stack adds by itself, with every factor at its first value, which no factor here "
            "explains, or what it pays more for a factor. In brackets are 95 % intervals that hold all at "
            "once for one stack, number of workers and number of epochs (Bonferroni), and the last column "
            "goes by them, and by the noise floor if there is one."
        ),
        columns=columns(
            *("stack", "workers", "epochs", "factor", "value", "against", "pairs"),
            *(f"on {baseline}, ms", "on the stack, ms", "more on the stack, ms", "what that is"),
            words=words,
        ),
        rows=[row for each in found for row in _rows(each, "step_ms")],
        after=[remark for each in found for remark in _remarks(each)],
    )


def _measured(found: Sequence[Recipes]) -> str:
    if any(each.own_clock for each in found):
        return "Milliseconds a step, on the script's own clock"
    return "Milliseconds of train_s a step, evaluation included"


def factors_once_table(found: Sequence[Recipes], doubt: str = "") -> Table:
    """The same of the seconds that don't belong to steps; no rows if no run says what they are."""
    baseline = found[0].baseline if found else ""
    words = ("stack", "factor", "value", "against", "seconds", "what that is")
    rows = [
        [*row[:6], name, *row[6:]]
        for each in found
        for measure, name in ONCE.items()
        if measure in each.costs
        for row in _rows(each, measure)
    ]
    return Table(
        title=ONCE_TITLE,
        before=doubt
        + (
            "The same in seconds of a run: how much more of train_s lies beyond the steps (set-up, "
            "evaluations and checkpoints, so it is a part of the milliseconds above), and how much more of "
            "total_s lies outside train_s. The intervals hold all at once for one stack, number of workers "
            "and kind of seconds."
        ),
        columns=columns(
            *("stack", "workers", "epochs", "factor", "value", "against", "seconds", "pairs"),
            *(f"on {baseline}, s", "on the stack, s", "more on the stack, s", "what that is"),
            words=words,
        ),
        rows=rows,
        after=[
            *(
                f"{_where(each)}: not every run says how long its steps took, so {ONCE['fixed_s']} is left "
                "out."
                for each in found
                if rows and "fixed_s" not in each.costs
            ),
            *(remark for each in found if rows for remark in _mixed(each)),
        ],
    )


def _rows(each: Recipes, measure: Measure) -> list[list[Value | str]]:
    costs = each.costs[measure]
    return [_itself(each, costs, measure), *(_row(each, effect, measure) for effect in costs.effects)]


def _itself(each: Recipes, costs: Costs, measure: Measure) -> list[Value | str]:
    alone = costs.stack_alone
    found = sign(alone)
    return [
        each.other,
        Value(each.workers),
        Value(each.epochs),
        UNEXPLAINED,
        "",
        each.baseline,
        run_count(alone.n),
        "",
        "",
        _value(alone, measure),
        ("within the noise" if sign(replace(alone, floor=None)) else "no difference is shown")
        if not found
        else f"it takes {'more' if found > 0 else 'less'} by itself",
    ]


def _row(each: Recipes, effect: FactorEffect, measure: Measure) -> list[Value | str]:
    return [
        each.other,
        Value(each.workers),
        Value(each.epochs),
        effect.factor,
        value_text(effect.value),
        value_text(effect.first),
        run_count(effect.on_other.n),
        _value(effect.on_baseline, measure),
        _value(effect.on_other, measure),
        _value(effect.more_on_other, measure),
        _what(each, effect),
    ]


def _what(each: Recipes, effect: FactorEffect) -> str:
    """What the intervals show of a factor, and no more."""
    return _shown(each, effect) + (MIXED if effect.factor in each.mixed else "")


def _shown(each: Recipes, effect: FactorEffect) -> str:
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


def _value(found: Difference, measure: Measure) -> Value:
    return Value(found.mean, replace(FORMATS[measure], unit=""), low=found.low, high=found.high)


def _where(each: Recipes) -> str:
    return f"{each.other}, {counted(each.workers, 'worker')}, {counted(each.epochs, 'epoch')}"


def _remarks(each: Recipes) -> list[str]:
    where, whole = _where(each), each.cells == each.of
    remarks = [f"{where}: {_named(each)}"] if each.floors else []
    if not whole:
        remarks.append(f"{where}: {each.cells} of the {each.of} cells of a full factorial were run.")
    remarks += _mixed(each)
    if not each.by_seeds and each.seeds > 1:
        remarks.append(
            f"{where}: fewer than {counted(FEWEST, 'seed')}, so the intervals come from what one fit to all "
            "runs leaves over, and take the runs of a stack to vary alike."
        )
    if each.seeds_left_out:
        left = counted(each.seeds_left_out, "seed")
        remarks.append(f"{where}: {left} left out, for want of runs or because of other cells.")
    if each.confounded:
        remarks.append(f"{where}: the runs can't tell apart, so it is left out: {listed(each.confounded)}.")
    if each.in_stack_alone:
        remarks.append(f"{where}: what {ITSELF} takes includes {listed(each.in_stack_alone)}.")
    return remarks


def _mixed(each: Recipes) -> list[str]:
    """Where two factors together look like a third, a sentence for each such factor."""
    return [
        f"{_where(each)}: what {factor} costs is mixed with how two others change each other's cost: "
        + listed([f"{one} and {other}" for one, other in pairs], "or")
        + "."
        for factor, pairs in each.mixed.items()
    ]


def _named(each: Recipes) -> str:
    """What makes the stack slower than the baseline most clearly, of all that is in both tables."""
    cause = each.named
    if cause is None:
        return "no cause is named, as no cost of the stack is clear of zero and above the noise floor."
    term = cause.term
    what = (
        f"what it pays more for {term.factor} {value_text(json.loads(term.value))}"
        if term.factor
        else f"{ITSELF}, which no factor here explains"
    )
    if term.factor in each.mixed:
        what += " (mixed, see below)"
    kind = f" {ONCE[cause.measure]}" if cause.measure in ONCE else ""
    return (
        f"the cause named first is {what}: {quantity(cause.cost.mean, FORMATS[cause.measure])}{kind}, "
        f"{number(cause.share, TENTHS)} noise floors."
    )
