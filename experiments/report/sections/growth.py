"""How long a step takes as the work grows, the model that is fitted to it, and what that model predicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from experiments.analysis.growth import Curve, Growth, Prediction, Quantity, Unknown
from experiments.analysis.scaling_model import SPARE, TERMS, Interval, ScalingModel, Term, TooFew
from experiments.report.formats import (
    CHANGE,
    GROUPED,
    PLAIN,
    RATIO,
    TENTHS,
    Format,
    Value,
    interval,
    number,
    quantity,
)
from experiments.report.names import link_text, stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import counted, listed

TITLE: Final = "How cost grows"
WORDS: Final[dict[Term, str]] = {
    "fixed": "each step, ms",
    "flop": "a billion operations, ms",
    "attention": "a million attention weights, ms",
    "parameters": "a million parameters, ms",
    "bytes": "a MB sent, ms",
    "rounds": "a round of messages, ms",
    "link": "a ms on the link, ms",
}
QUANTITIES: Final[dict[Quantity, str]] = {
    "length": "sequence length, tokens",
    "batch": "batch of a rank, samples",
    "vocabulary": "vocabulary, entries",
    "model": "model, parameters",
    "ranks": "ranks",
    "link": "link, Gbit/s",
}
UNKNOWN: Final[dict[Unknown, str]] = {
    "computed": "what a step computes is not known of every cell; it is of models with random weights whose "
    "settings say it, with padding: max_length",
    "parameters": "a record does not say how many parameters the model has; make its run again",
    "bytes": "a record does not say what its ranks sent, and no arithmetic does; use gradient_sync: dense, "
    "or see What the runs used for the reason",
    "link": "a link_rate is not of the form 1gbit, 100mbit or 500kbit; write it so",
}
ERROR: Final = Format(1, factor=100, unit=" %")
STEP: Final = Format()  # ms


def growth_sentences(found: Sequence[Growth]) -> list[str]:
    """How well a model fits each stack's steps, and what it says of more workers, where one is fitted."""
    said = []
    for each in found:
        model = each.model
        if isinstance(model, ScalingModel) and model.held_out is not None:
            median, worst = (quantity(of, ERROR) for of in (model.held_out.median, model.held_out.worst))
            text = (
                f"{_name(each)}: a model fitted to the steps of {counted(model.cells, 'cell')} misses one "
                f"that is held out by {median} (median), and by {worst} at worst."
            )
            there = [one for one in each.predictions if one.link_gbit == each.base_gbit]
            steps = [f"{_step_text(one)} with {counted(one.workers, 'worker')}" for one in there]
            beyond = ", beyond all cells" if all(one.beyond for one in there) else ""
            said.append(f"{text} By it a step would take {listed(steps)}{beyond}." if steps else text)
    return said


def _step_text(of: Prediction) -> str:
    step = of.step_ms
    return f"{number(step.value, STEP)} ms ({interval(step.low, step.high, STEP)})"


def growth_table(found: Sequence[Growth]) -> Table:
    """The costs by the model; its parts are the steps themselves, and what the model predicts."""
    fitted = [(each, each.model) for each in found if isinstance(each.model, ScalingModel)]
    parts = [_points_table(found), _predictions_table(found)]
    return Table(
        title=TITLE,
        before=(
            "A step is the median of a run's steps on the rank where that is longest, and a cell's is the "
            "median over its runs. Its time is shared out by least squares over all cells of a row, with no "
            "cost below zero and errors relative to a cell's time: a part in each step, and for what a rank "
            "computes, keeps and sends. In brackets are 95 % intervals that hold for a row at once "
            "(Bonferroni). The errors are those of cells that were left out of the fit, each in turn."
        ),
        columns=columns(
            *("stack", "cells", "runs"),
            *WORDS.values(),
            "error of a cell held out, median",
            "the worst",
            words=("stack",),
        ),
        rows=[
            [
                _name(each),
                Value(model.cells),
                run_count(each.runs),
                *(_cost(model.costs.get(term)) for term in TERMS),
                Value(model.held_out.median if model.held_out else None, ERROR),
                Value(model.held_out.worst if model.held_out else None, ERROR),
            ]
            for each, model in fitted
        ],
        after=[f"{_name(each)}: {said}" for each in found for said in _remarks(each)],
        parts=[part for part in parts if part.rows],
    )


def _points_table(found: Sequence[Growth]) -> Table:
    return Table(
        title="Steps by what grows",
        before="Around one cell of each stack, everything else as there.",
        columns=columns(
            *("stack", "what grows", "value", "runs", "step, ms", "by the model, ms", "model less step"),
            words=("stack", "what grows"),
        ),
        rows=[
            [
                _name(each),
                QUANTITIES[curve.quantity],
                _value(curve, x),
                run_count(len(point.runs_ms)),
                Value(point.step_ms, TENTHS),
                Value(point.model_ms, TENTHS),
                Value(None if point.model_ms is None else point.model_ms / point.step_ms - 1, CHANGE),
            ]
            for each in found
            for curve in each.curves
            for x, point in curve.points
        ],
    )


def _predictions_table(found: Sequence[Growth]) -> Table:
    return Table(
        title="More workers and other links",
        before=(
            "By the model, for the cell in the middle of the curves, with its batch on every rank and "
            "gradients summed in a ring. The intervals hold for a stack's rows at once; they know the "
            "scatter about the model, and nothing of what the model lacks. The efficiency is the step on one "
            "worker over this one."
        ),
        columns=columns(
            *("stack", "workers", "link", "step, ms", "95 % interval", "efficiency", "what that is"),
            words=("stack", "link", "what that is"),
        ),
        rows=[
            [
                _name(each),
                Value(prediction.workers),
                link_text(prediction.link_gbit),
                Value(prediction.step_ms.value, TENTHS),
                Value(None, TENTHS, low=prediction.step_ms.low, high=prediction.step_ms.high),
                Value(prediction.efficiency, RATIO),
                _kind(prediction),
            ]
            for each in found
            for prediction in each.predictions
        ],
    )


def _kind(prediction: Prediction) -> str:
    return "extrapolation: beyond all cells" if prediction.beyond else "within the cells"


def _remarks(each: Growth) -> Iterable[str]:
    model = each.model
    if isinstance(model, TooFew):
        least = model.terms + SPARE
        yield (
            f"no model is fitted: {counted(model.cells, 'cell')} can't tell {counted(model.terms, 'cost')} "
            f"and how far off they are; it takes {number(least)} or more, so vary more quantities or values."
        )
    elif isinstance(model, ScalingModel):
        if model.lost:
            yield (
                "these cells can't tell apart from the costs before, so they are in those: "
                f"{listed([_without_unit(term) for term in model.lost])}."
            )
        if model.absent:
            yield f"no cell has any of these: {listed([_without_unit(term) for term in model.absent])}."
        if model.held_out is None:
            yield "without any one cell, the others can't tell all costs apart, so none is predicted by them."
        elif model.held_out.cells < model.cells:
            yield (
                f"{counted(model.held_out.cells, 'cell')} of {number(model.cells)} could be held out; "
                "without one of the rest, the others can't tell all costs apart."
            )
        yield from _untold(each)
    else:
        yield f"no model is fitted: {UNKNOWN[model]}."


def _untold(each: Growth) -> Iterable[str]:
    """What the cells say nothing of, in one sentence for the links of which they lack the same."""
    if each.undetermined and not each.predictions:
        yield (
            "these cells don't tell what more workers would take; it takes cells with two numbers of "
            "workers, and several with models of two sizes, where gradient_sync is dense, bf16 or fp16."
        )
        return
    links: dict[tuple[int, ...], list[float | None]] = {}
    for gbit in dict.fromkeys(gbit for _, gbit in each.undetermined):
        links.setdefault(tuple(at for at, other in each.undetermined if other == gbit), []).append(gbit)
    for workers, rates in links.items():
        yield (
            f"these cells don't tell what {listed([number(at) for at in workers])} workers would take where "
            f"the link is {listed([link_text(gbit) for gbit in rates], 'or')}; it takes cells with several "
            "workers on links of two rates."
        )


def _cost(cost: Interval | None) -> Value:
    return Value(None) if cost is None else Value(cost.value, RATIO, low=cost.low, high=cost.high)


def _value(curve: Curve, x: float) -> Value:
    return Value(x, PLAIN if curve.quantity == "link" else GROUPED)


def _without_unit(term: Term) -> str:
    return WORDS[term].rpartition(",")[0]


def _name(each: Growth) -> str:
    return stack_text(each.stack, each.settings)
