"""What the figures of a campaign say against one another, and beside the dissertation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from experiments.figures import Cell, Figures, setting_text
from experiments.records import Record
from experiments.reference import Reference
from experiments.statistics import LEVEL, MARGIN, Ratio, Split, holm, paired_ratio, split

ALPHA: Final = 1 - LEVEL
STEPS: Final = {1: 782, 2: 391}  # of the dissertation's epochs: 25,000 reviews, 32 for each worker


@dataclass(frozen=True)
class Compared:
    """A cell's train_s over the baseline's, run by run with the same seed."""

    cell: Cell
    ratio: Ratio
    corrected_p: float | None  # by Holm, for all comparisons of the report; None with one pair
    verdict: str


@dataclass(frozen=True)
class Parts:
    """train_s of a stack on so many workers as a fixed part and a part per step."""

    stack: str
    workers: int
    setting: str  # the values of the matrix's other axes
    here: Split
    there: Split | None  # the dissertation's


@dataclass(frozen=True)
class Beside:
    """One quantity here and in the dissertation."""

    table: str  # of the dissertation
    stack: str
    workers: int
    quantity: str
    here: float
    there: float
    digits: int  # after the point
    runs: int  # that `here` comes from, or pairs of them
    there_runs: int

    @property
    def ratio(self) -> float:
        """Here over there."""
        return self.here / self.there


def comparisons(figures: Figures) -> list[Compared]:
    """Every cell of another stack than the baseline that has runs to be paired with the baseline's."""
    found = []
    for cell in figures.cells:
        base = sibling(figures.cells, cell, stack=figures.campaign.baseline)
        if cell.stack == figures.campaign.baseline or base is None:
            continue
        pairs = paired_by_seed(cell.records, base.records)
        ratio = paired_ratio([(above.train_s or 0.0, below.train_s or 0.0) for above, below in pairs])
        if ratio is not None:
            found.append((cell, ratio))
    known = [ratio.p for _, ratio in found if ratio.p is not None]
    corrected = iter(holm(known))
    compared = []
    for cell, ratio in found:
        p = next(corrected) if ratio.p is not None else None
        compared.append(Compared(cell, ratio, p, verdict(ratio, p)))
    return compared


def verdict(ratio: Ratio, corrected_p: float | None) -> str:
    """What may be said of a ratio, and no more."""
    if corrected_p is None or ratio.equivalent_p is None or ratio.visible is None:
        return "a single pair: no interval, and nothing can be said"
    differs, equivalent = corrected_p < ALPHA, ratio.equivalent_p < ALPHA
    if differs:
        way = "takes longer" if ratio.ratio > 1 else "takes less time"
        return f"{way}, by less than {MARGIN:.0%}".replace("%", " %") if equivalent else way
    if equivalent:
        return f"the same within {MARGIN * 100:.0f} %"
    return (
        f"can't tell: these runs would have shown a difference of {ratio.visible * 100:.1f} %, and no smaller"
    )


def parts(figures: Figures, reference: Reference) -> list[Parts]:
    """The split of every stack's time, where there are runs of two lengths."""
    points: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for cell in figures.cells:
        measured = points.setdefault((cell.stack, cell.workers, setting_text(cell.axes)), [])
        for record in cell.records:
            work = record.specification.work
            if record.train_s is not None:
                measured.append((work.steps_per_epoch * work.epochs, record.train_s))
    found = []
    for (stack, workers, setting), measured in points.items():
        here = split(measured)
        if here is not None:
            there = _reference_split(reference, stack, workers)
            found.append(Parts(stack, workers, setting, here, there))
    return found


def _reference_split(reference: Reference, stack: str, workers: int) -> Split | None:
    runs = [reference.run(stack, workers, epochs) for epochs in (20, 100)]
    if workers not in STEPS:
        return None
    return split([(STEPS[workers] * run.epochs, run.seconds) for run in runs if run is not None])


def beside(figures: Figures, reference: Reference) -> list[Beside]:
    """Every quantity of tables 5.1 to 5.9 that both have: times per epoch, ratios, accuracy."""
    rows = []
    for cell in figures.cells:
        epochs = int(cell.axes["epochs"])
        # Where the dissertation has no run of so many epochs, its main experiment is taken.
        length = epochs if reference.run(cell.stack, cell.workers, epochs) else 20
        there = reference.run(cell.stack, cell.workers, length)
        if there is None or cell.train_s is None:
            continue

        def add(
            table: str,
            quantity: str,
            here: float | None,
            value: float | None,
            digits: int,
            runs: int,
            cell: Cell = cell,
            there_runs: int = there.of_runs,
        ) -> None:
            if here is not None and value is not None:
                place = (table, cell.stack, cell.workers, quantity)
                rows.append(Beside(*place, here, value, digits, runs, there_runs))

        per_epoch, quantity = cell.train_s.mean / epochs, f"seconds per epoch ({length} epochs there)"
        add("5.4, 5.9", quantity, per_epoch, there.per_epoch, 2, cell.train_s.n)
        if cell.accuracy is not None:
            name = "5.6" if length == 100 else "5.5"
            add(name, "accuracy", cell.accuracy.accuracy, there.accuracy, 4, cell.accuracy.n)
        if cell.overhead_train is not None and figures.campaign.baseline == "ddp":
            over = reference.overhead(cell.stack, cell.workers, length)
            add("5.7", "time over DDP's", 1 + cell.overhead_train, over, 2, cell.overhead_pairs)
        speed_up = reference.speed_up(cell.stack, cell.workers, length)
        add("5.8", "speed-up", cell.speed_up, speed_up, 2, cell.speed_up_pairs)
    return rows


def sibling(cells: Sequence[Cell], cell: Cell, **changed: Any) -> Cell | None:
    """The cell that differs from `cell` only in what is `changed`."""
    wanted = cell.axes | changed
    return next((other for other in cells if other.axes == wanted), None)


def paired_by_seed(first: Sequence[Record], second: Sequence[Record]) -> list[tuple[Record, Record]]:
    """The runs of the same seed that both have, with their times."""
    others = {record.specification.work.seed: record for record in second if record.train_s}
    return [
        (record, others[record.specification.work.seed])
        for record in first
        if record.train_s and record.specification.work.seed in others
    ]
