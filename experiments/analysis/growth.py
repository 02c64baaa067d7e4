"""How long a step takes as the work grows: with longer samples, batches, vocabularies, models, more ranks.

Cells that differ only in such quantities are one stack's points; around one of them, the base, each quantity
that varies by itself gives a curve. A model of all points (`scaling_model`) says what steps on more workers
and on other links would take.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, Final, Literal

from experiments.analysis.figures import REPETITION, Cell, Figures
from experiments.analysis.resource_use import GRADIENT_BYTES, MB, QUANTITIES, ring_bytes
from experiments.analysis.scaling_model import Amounts, Interval, ScalingModel, TooFew, fit
from experiments.matrix.model import OF_DATA
from experiments.matrix.workers import GLOBAL_BATCH

Quantity = Literal["length", "batch", "vocabulary", "model", "ranks", "link"]
FEWEST: Final = 3  # values of a quantity that make a curve, unless ranks and another quantity vary
WORKERS: Final = (4, 8, 64)  # that steps are predicted for
LINKS: Final = (1.0, 10.0, 100.0)  # likewise, Gbit/s
SENT: Final = "sent_mb_per_rank_and_step"
RATE: Final = re.compile(r"(\d+(?:\.\d+)?)([kmg])bit")
GBIT: Final = {"k": 1e-6, "m": 1e-3, "g": 1.0}

Unknown = Literal["computed", "parameters", "bytes", "link"]
"""What is not known of the steps of some cell: what they compute, how many parameters their model has, what
their ranks send, or how fast their link is."""


@dataclass(frozen=True)
class Step:
    """What a step is, as far as its time may depend on it."""

    workers: int
    slots: int  # ranks of each worker
    gflop: float  # of a rank: the forward pass, and the backward pass of twice as much
    attention_weights: float  # of a rank
    parameters: int
    gradient_bytes: int | None  # a parameter's; None: what is sent depends on the batch
    sent_mb: float | None  # by each of several ranks, as measured, where there is no arithmetic for it
    link_gbit: float | None  # None: not limited

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.workers * self.slots

    def on(self, workers: int, gbit: float | None) -> Step | None:
        """The same on so many workers; None if it is not known what their ranks send."""
        there = replace(self, workers=workers, link_gbit=gbit, sent_mb=None)
        return there if there.ranks == 1 or self.gradient_bytes is not None else None

    def amounts(self) -> Amounts:
        """What it has of each term of the model."""
        sent, on_link = self.sent_mb or 0.0, self.workers > 1 and self.link_gbit is not None
        if self.gradient_bytes is not None:
            sent = ring_bytes(self.parameters, self.ranks, self.gradient_bytes) / MB
        return {
            "fixed": 1.0,
            "flop": self.gflop,
            "attention": self.attention_weights / 1e6,
            "parameters": self.parameters / 1e6,
            "bytes": sent,
            "rounds": 2.0 * (self.ranks - 1),  # of messages in a ring
            "link": sent * MB * 8 / ((self.link_gbit or 1.0) * 1e6) if on_link else 0.0,
        }


@dataclass(frozen=True)
class Point:
    """A cell's step."""

    cell: Cell
    runs_ms: list[float]  # of each run, the median of its steps on the rank where it is longest
    model_ms: float | None  # None: there is no model

    @property
    def step_ms(self) -> float:
        """The median over the runs, which differ in their seeds."""
        return median(self.runs_ms)


@dataclass(frozen=True)
class Curve:
    """The points that differ from the base in one quantity alone, with its values in ascending order."""

    quantity: Quantity
    points: list[tuple[float, Point]]


@dataclass(frozen=True)
class Prediction:
    """A step of the base on so many workers, each with the base's batch."""

    workers: int
    ranks: int
    link_gbit: float | None  # None: not limited
    step_ms: Interval
    efficiency: float | None  # the step on one worker over this; None: the cells don't tell that one
    beyond: bool  # whether no cell has as many workers, or none this link


@dataclass(frozen=True)
class Growth:
    """How a stack's steps grow, all else equal."""

    stack: str
    settings: dict[str, Any]  # the values of the axes that are not varied
    runs: int
    base_gbit: float | None  # the rate of the base's link
    curves: list[Curve]
    model: ScalingModel | TooFew | Unknown
    predictions: list[Prediction]
    undetermined: list[tuple[int, float | None]]  # workers and links that the cells tell nothing of


def growth(figures: Figures) -> list[Growth]:
    """Of every stack whose cells vary such a quantity; of simulated steps, which only wait, there is none."""
    if figures.campaign.simulated:
        return []
    groups: dict[str, list[Cell]] = {}
    for cell in figures.cells:
        if REPETITION not in cell.settings and _runs_ms(cell):
            fixed = {name: value for name, value in cell.axes.items() if name not in _axes(cell)}
            groups.setdefault(repr(fixed), []).append(cell)
    return [
        found for cells in groups.values() if (found := _growth(cells, figures.campaign.looks)) is not None
    ]


def link_gbit(rate: str | None) -> float | None:
    """A link rate such as `1gbit`, in Gbit/s; None if it is none of this form, or not limited."""
    found = None if rate is None else RATE.fullmatch(rate)
    return None if found is None else float(found[1]) * GBIT[found[2]]


def _growth(cells: Sequence[Cell], looks: int) -> Growth | None:
    """Of cells that differ in nothing else; None if they vary too little."""
    base = max(cells, key=lambda cell: sum(len(_differing(cell, other)) == 1 for other in cells))
    varied = {quantity: _alone(base, axis, quantity, cells) for axis, quantity in _axes(base).items()}
    values = {quantity: len({x for x, _ in found}) for quantity, found in varied.items()}
    several = [quantity for quantity, number in values.items() if number > 1]
    if max(values.values()) < FEWEST and not ("ranks" in several and len(several) > 1):
        return None
    steps = [_step_of(cell) for cell in cells]
    known = [step for step in steps if isinstance(step, Step)]
    model: ScalingModel | TooFew | Unknown | None = next(
        (each for each in steps if isinstance(each, str)), None
    )
    if model is None:
        model = fit(
            [(step.amounts(), _step_ms(cell)) for step, cell in zip(known, cells, strict=True)], looks
        )
    points = [Point(cell, _runs_ms(cell), None) for cell in cells]
    predicted, undetermined = list[Prediction](), list[tuple[int, float | None]]()
    if isinstance(model, ScalingModel):
        points = [
            replace(point, model_ms=model.step_ms(step.amounts()))
            for point, step in zip(points, known, strict=True)
        ]
        predicted, undetermined = _predictions(model, known[cells.index(base)], known)
    of_cell = dict(zip(map(id, cells), points, strict=True))
    return Growth(
        stack=base.stack,
        settings={name: value for name, value in base.settings.items() if name not in _axes(base)},
        runs=sum(len(point.runs_ms) for point in points),
        base_gbit=link_gbit(base.timed[0].specification.conditions.link_rate),
        curves=[
            Curve(quantity, [(x, of_cell[id(cell)]) for x, cell in varied[quantity]]) for quantity in several
        ],
        model=model,
        predictions=predicted,
        undetermined=undetermined,
    )


def _predictions(
    model: ScalingModel, base: Step, steps: Sequence[Step]
) -> tuple[list[Prediction], list[tuple[int, float | None]]]:
    """Of the base on more workers, over its own link and others; and what the cells don't tell."""
    links = [base.link_gbit, *(gbit for gbit in LINKS if gbit != base.link_gbit)]
    told, untold = list[tuple[int, float | None, Amounts]](), list[tuple[int, float | None]]()
    for workers, gbit in itertools.product(WORKERS, links):
        step = base.on(workers, gbit)
        if step is not None and model.determines(step.amounts()):
            told.append((workers, gbit, step.amounts()))
        else:
            untold.append((workers, gbit))
    alone = base.on(1, base.link_gbit)
    alone_ms = model.step_ms(alone.amounts()) if alone and model.determines(alone.amounts()) else None
    intervals = model.predictions([amounts for *_, amounts in told])
    most, known = max(step.workers for step in steps), {step.link_gbit for step in steps if step.workers > 1}
    return [
        Prediction(
            workers=workers,
            ranks=workers * base.slots,
            link_gbit=gbit,
            step_ms=step_ms,
            efficiency=None if alone_ms is None else alone_ms / step_ms.value,
            beyond=workers > most or gbit not in known,
        )
        for (workers, gbit, _), step_ms in zip(told, intervals, strict=True)
    ], untold


def _step_of(cell: Cell) -> Step | Unknown:
    """A cell's step, or what is not known of it."""
    first = cell.timed[0]
    work, conditions = first.specification.work, first.specification.conditions
    cost, parameters = work.model.forward_cost(work.data), first.ranks[0].parameters
    if cost is None or work.padding != "max_length":
        return "computed"
    if parameters is None:
        return "parameters"
    if conditions.link_rate is not None and link_gbit(conditions.link_rate) is None:
        return "link"
    width = GRADIENT_BYTES.get(first.ranks[0].gradient_sync or work.gradient_sync)
    sent = [mb for record in cell.timed if (mb := QUANTITIES[SENT](record)) is not None]
    if width is None and work.world_size > 1 and not sent:
        return "bytes"
    passes = (
        4 if work.activation_checkpointing else 3
    )  # the forward pass, perhaps once more; and two backward
    return Step(
        workers=work.workers,
        slots=work.slots_per_worker,
        gflop=passes * cost.flop * work.batch_per_worker / 1e9,
        attention_weights=cost.attention_weights * work.batch_per_worker,
        parameters=parameters,
        gradient_bytes=width,
        sent_mb=fmean(sent) if width is None and work.world_size > 1 else None,
        link_gbit=link_gbit(conditions.link_rate),
    )


def _axes(cell: Cell) -> dict[str, Quantity]:
    """Those of its axes on which such a quantity may depend."""
    length = cell.records[0].specification.work.data.length_setting
    quantities: dict[str, Quantity] = {
        f"{OF_DATA}{length}": "length",
        "batch_per_worker": "batch",
        GLOBAL_BATCH: "batch",
        f"{OF_DATA}vocabulary": "vocabulary",
        "model": "model",
        "workers": "ranks",
        "link_rate": "link",
    }
    return {axis: quantity for axis, quantity in quantities.items() if axis in cell.axes}


def _differing(cell: Cell, other: Cell) -> set[str]:
    """The axes in which they differ."""
    return {axis for axis, value in cell.axes.items() if other.axes[axis] != value}


def _alone(base: Cell, axis: str, quantity: Quantity, cells: Sequence[Cell]) -> list[tuple[float, Cell]]:
    """The cells that differ from the base in that axis at most, by the quantity, where it is known."""
    found = [
        (x, cell)
        for cell in cells
        if _differing(base, cell) <= {axis} and (x := _value(cell, axis, quantity)) is not None
    ]
    return sorted(found, key=lambda each: each[0])


def _value(cell: Cell, axis: str, quantity: Quantity) -> float | None:
    """A cell's value of a quantity; of a model its parameters, of a link Gbit/s."""
    first = cell.timed[0]
    work = first.specification.work
    if quantity == "batch":
        return work.batch_per_worker
    if quantity == "model":
        return first.ranks[0].parameters
    if quantity == "ranks":
        return work.world_size
    if quantity == "link":
        return link_gbit(first.specification.conditions.link_rate)
    value: float = cell.axes[axis]
    return value


def _step_ms(cell: Cell) -> float:
    return median(_runs_ms(cell))


def _runs_ms(cell: Cell) -> list[float]:
    """What a step of each run takes, on the rank where it takes longest; older records don't say."""
    times = [[rank.step_times for rank in record.ranks] for record in cell.timed]
    return [
        max(each.median_ms for each in ranks if each is not None)
        for ranks in times
        if ranks and all(each is not None for each in ranks)
    ]
