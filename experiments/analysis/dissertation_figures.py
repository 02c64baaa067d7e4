"""The dissertation's tables 5.1 to 5.9, rebuilt: every figure, and what stands beside it here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from experiments.analysis.dissertation import LONG, SHORT, Dissertation, PublishedRun, Quantity
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import mean_difference, paired_ratio
from experiments.matrix.model import CONDITION_FIELDS
from experiments.records.record import Record

MAIN_TABLES: Final = ("5.7", "5.8", "5.9")  # they have two workers and the short runs alone


@dataclass(frozen=True)
class PublishedFigure:
    """One quantity in the dissertation, and here if there are such runs."""

    tables: tuple[str, ...]  # of the dissertation
    stack: str
    workers: int
    settings: dict[str, Any]  # the values of the matrix's other axes
    epochs: tuple[int, ...]  # here; none if there are no such runs
    published_epochs: tuple[int, ...]
    quantity: Quantity
    here: float | None
    published: float
    runs: int  # that `here` comes from, or pairs of them
    published_runs: int
    low: float | None = None  # ends of the 95 % interval of `here`, where it comes from several runs or pairs
    high: float | None = None

    @property
    def is_printed(self) -> bool:
        """Whether its tables have it; if not, it follows from the same times as their figures do."""
        return self.tables[0] not in MAIN_TABLES or (self.workers, self.published_epochs) == (2, (SHORT,))


@dataclass(frozen=True)
class _Pair:
    """A cell, and the length of the dissertation's runs that it is compared with."""

    cell: Cell
    length: int
    of_runs: int

    @property
    def epochs(self) -> int:
        return self.cell.epochs


def published_figures(figures: Figures, reference: Dissertation) -> list[PublishedFigure]:
    """Every quantity of tables 5.1 to 5.9, table by table, at the lengths that are compared here.

    Where nothing here stands beside it, there is only the dissertation's figure. None of a matrix with
    ladders, whose cells differ from the dissertation's on purpose; of one that varies conditions, only the
    cells with their first values.
    """
    if figures.campaign.ladders:
        return []
    lengths = _lengths({cell.epochs for cell in figures.cells})
    first = figures.cells[0].axes if figures.cells else {}
    conditions = [name for name in first if name in CONDITION_FIELDS]
    pairs = []
    for cell in (
        each for each in figures.cells if all(each.axes[name] == first[name] for name in conditions)
    ):
        length = lengths[cell.epochs]
        there = reference.run(cell.stack, cell.workers, length)
        if there is not None and cell.train_s is not None:
            pairs.append(_Pair(cell, length, there.of_runs))
    rows = [row for pair in pairs for row in (*_alone(pair, reference), *_speed_up(pair, reference))]
    if figures.campaign.baseline == "ddp":
        rows += [row for pair in pairs for row in _against_ddp(pair, pairs, reference)]
    rows += _linearity(pairs, reference)
    rows += _only_there(rows, {pair.length for pair in pairs}, reference)
    return sorted(rows, key=lambda row: row.tables)  # stable: within a table as they came


def _lengths(epochs: set[int]) -> dict[int, int]:
    """Which of the dissertation's lengths each of ours is compared with.

    A length that it has is compared with itself. If it has none of ours and there are just two, the shorter
    is compared with its short one, the longer with its long one; all others with its main experiment.
    """
    known = {length: length for length in epochs if length in (SHORT, LONG)}
    if not known and len(epochs) == 2:
        return {min(epochs): SHORT, max(epochs): LONG}
    return dict.fromkeys(epochs, SHORT) | known


def main_length(epochs: set[int]) -> int:
    """Our length that stands beside its main experiment in figure 5.1: the same, or else our shortest."""
    return SHORT if SHORT in epochs else min(epochs)


def _alone(pair: _Pair, reference: Dissertation) -> Iterator[PublishedFigure]:
    """Tables 5.1 to 5.3, 5.5 and 5.6: times and accuracies as they are."""
    cell, there = pair.cell, reference.run(pair.cell.stack, pair.cell.workers, pair.length)
    if there is None or cell.train_s is None:
        return
    seconds, share = cell.train_s, 1 / pair.epochs
    row = _row(pair, (there.table,), "seconds of training", seconds.mean, there.seconds, seconds.n)
    yield _with_ends(row, seconds.low, seconds.high)
    row = _row(pair, ("5.4",), "seconds per epoch", seconds.mean * share, there.per_epoch, seconds.n)
    yield _with_ends(row, seconds.low, seconds.high, share)
    accuracy = cell.metrics.get("accuracy")
    if accuracy is not None:
        table = "5.6" if pair.length == LONG else "5.5"
        row = _row(pair, (table,), "accuracy", accuracy.mean, there.accuracy, accuracy.n)
        yield _with_ends(row, accuracy.low, accuracy.high)


def _speed_up(pair: _Pair, reference: Dissertation) -> Iterator[PublishedFigure]:
    """Table 5.8."""
    cell = pair.cell
    there = reference.speed_up(cell.stack, cell.workers, pair.length)
    if cell.speed_up is None or there is None or cell.workers == 1:
        return
    found, percent = cell.speed_up, 100 / cell.workers
    row = _row(pair, ("5.8",), "speed-up", found.ratio, there, found.n)
    yield _with_ends(row, found.low, found.high)
    row = _row(pair, ("5.8",), "efficiency, %", found.ratio * percent, there * percent, found.n)
    yield _with_ends(row, found.low, found.high, percent)


def _against_ddp(pair: _Pair, pairs: list[_Pair], reference: Dissertation) -> Iterator[PublishedFigure]:
    """Tables 5.7 and 5.9: what a stack takes beyond DDP."""
    cell, base = pair.cell, reference.run("ddp", pair.cell.workers, pair.length)
    there = reference.run(cell.stack, cell.workers, pair.length)
    own = next((other.cell for other in pairs if other.cell.axes == cell.axes | {"stack": "ddp"}), None)
    if cell.overhead_train is None or own is None or base is None or there is None or cell.stack == "ddp":
        return
    ratio = cell.overhead_train
    row = _row(pair, ("5.7",), "time over DDP's", ratio.ratio, there.seconds / base.seconds, ratio.n)
    yield _with_ends(row, ratio.low, ratio.high)
    more = mean_difference(
        [(_train_s(ours) - _train_s(ddps)) / pair.epochs for ours, ddps in _paired(cell, own)]
    )
    assert more is not None  # the ratio comes from the same pairs
    beyond = there.per_epoch - base.per_epoch
    row = _row(pair, ("5.9",), "seconds per epoch beyond DDP's", more.mean, beyond, more.n)
    yield _with_ends(row, more.low, more.high)


def _linearity(pairs: list[_Pair], reference: Dissertation) -> Iterator[PublishedFigure]:
    """Table 5.4: seconds per epoch of the long runs over those of the short ones."""
    for pair in pairs:
        cell = pair.cell
        short = next(
            (
                other
                for other in pairs
                if other.length == SHORT and other.cell.axes | {"epochs": pair.epochs} == cell.axes
            ),
            None,
        )
        there = [reference.run(cell.stack, cell.workers, length) for length in (SHORT, LONG)]
        if pair.length != LONG or short is None or there[0] is None or there[1] is None:
            continue
        ours = paired_ratio(
            [
                (_train_s(long) / pair.epochs, _train_s(brief) / short.epochs)
                for long, brief in _paired(cell, short.cell)
            ]
        )
        if ours is None:
            continue
        yield PublishedFigure(
            tables=("5.4",),
            stack=cell.stack,
            workers=cell.workers,
            settings=cell.settings,
            epochs=(short.epochs, pair.epochs),
            published_epochs=(SHORT, LONG),
            quantity="seconds per epoch, long over short",
            here=ours.ratio,
            published=there[1].per_epoch / there[0].per_epoch,
            runs=ours.n,
            published_runs=min(short.of_runs, pair.of_runs),
            low=ours.low,
            high=ours.high,
        )


def _only_there(
    known: list[PublishedFigure], lengths: set[int], reference: Dissertation
) -> Iterator[PublishedFigure]:
    """The dissertation's figures at these lengths that nothing here stands beside."""
    here = {
        (reference.own_stack(each.stack), each.workers, each.published_epochs, each.quantity)
        for each in known
    }
    for run in (run for run in reference.runs if run.epochs in lengths):
        for table, quantity, published in _published(run, reference):
            if (run.stack, run.workers, (run.epochs,), quantity) not in here:
                yield PublishedFigure(
                    tables=(table,),
                    stack=run.stack,
                    workers=run.workers,
                    settings={},
                    epochs=(),
                    published_epochs=(run.epochs,),
                    quantity=quantity,
                    here=None,
                    published=published,
                    runs=0,
                    published_runs=run.of_runs,
                )


def _published(run: PublishedRun, reference: Dissertation) -> Iterator[tuple[str, Quantity, float]]:
    """What the dissertation has of one of its rows, with the table."""
    yield run.table, "seconds of training", run.seconds
    yield "5.4", "seconds per epoch", run.per_epoch
    yield "5.6" if run.epochs == LONG else "5.5", "accuracy", run.accuracy
    speed_up = reference.speed_up(run.stack, run.workers, run.epochs)
    if run.workers > 1 and speed_up is not None:
        yield "5.8", "speed-up", speed_up
        yield "5.8", "efficiency, %", speed_up * 100 / run.workers
    base = reference.run("ddp", run.workers, run.epochs)
    if run.stack != "ddp" and base is not None:
        yield "5.7", "time over DDP's", run.seconds / base.seconds
        yield "5.9", "seconds per epoch beyond DDP's", run.per_epoch - base.per_epoch


def _paired(cell: Cell, other: Cell) -> list[tuple[Record, Record]]:
    return paired_by_seed(cell.records, other.records)


def _train_s(record: Record) -> float:
    assert record.train_s is not None  # paired records have it
    return record.train_s


def _with_ends(
    row: PublishedFigure, low: float | None, high: float | None, factor: float = 1.0
) -> PublishedFigure:
    if low is None or high is None:
        return row
    return replace(row, low=low * factor, high=high * factor)


def _row(
    pair: _Pair, tables: tuple[str, ...], quantity: Quantity, here: float, published: float, runs: int
) -> PublishedFigure:
    return PublishedFigure(
        tables=tables,
        stack=pair.cell.stack,
        workers=pair.cell.workers,
        settings=pair.cell.settings,
        epochs=(pair.epochs,),
        published_epochs=(pair.length,),
        quantity=quantity,
        here=here,
        published=published,
        runs=runs,
        published_runs=pair.of_runs,
    )
