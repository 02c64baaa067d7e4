"""The figures of a campaign against its inventory's references: what is within its band, what left it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from experiments.analysis.figures import Cell, Figures
from experiments.analysis.statistics import Ratio
from experiments.matrix.references import OVERHEADS, Reference
from experiments.report.tables import NOTHING, Column, Table, change_text
from experiments.util.screen import Screen
from training.spec import RunSpec

ABSENT: Final = object()  # no value of any axis is this
DIGITS: Final = {"train_s": 2, "total_s": 2, "accuracy": 4, "speed_up": 3, "efficiency": 3}


@dataclass(frozen=True)
class Band:
    """One cell's figure against one reference."""

    reference: Reference
    cell: Cell
    here: float | None  # the mean over the cell's runs; None where there is none yet
    n: int  # runs that it is the mean of; for ratios, of seeds that both cells have

    @property
    def left(self) -> bool:
        """Whether the figure lies outside of its band."""
        low, high = self.reference.low, self.reference.high
        if self.here is None:
            return False
        return (low is not None and self.here < low) or (high is not None and self.here > high)

    @property
    def verdict(self) -> str:
        """What became of it, in a few words."""
        if self.here is None:
            return "nothing to compare with yet" if self.cell.records else "not run"
        value = self.reference.value
        away = (self.here - value) / abs(value)
        side = f"{abs(away) * 100:.1f} % {'above' if away > 0 else 'below'}"
        return f"left: {side}" if self.left else "within"

    @property
    def sentence(self) -> str:
        """Cell, figure, reference and band in one line."""
        quantity = self.reference.quantity
        return (
            f"{_cell(self.cell.axes)}: {quantity} is {_written(self.here, quantity)} (n = {self.n}), the "
            f"reference {_written(self.reference.value, quantity)}, its band {_band(self.reference)}; "
            f"{self.verdict}."
        )


@dataclass(frozen=True)
class Judged:
    """What the references say of a campaign."""

    bands: list[Band]
    unmatched: list[Reference]  # for this matrix, or for any, and fitting no cell of it
    elsewhere: list[str]  # the matrices that the others are for

    @property
    def left(self) -> list[Band]:
        """The figures outside of their bands."""
        return [band for band in self.bands if band.left]

    @property
    def exit_status(self) -> int:
        """1 if a figure left its band."""
        return 1 if self.left else 0


def judge(figures: Figures) -> Judged:
    """Every cell that a reference means, with what became of it, in the order of the references."""
    specifications = {
        _key(run.axes): run.specification for run in reversed(figures.campaign.measured)
    }  # of a cell's first run: only the seed differs
    bands, unmatched, elsewhere = [], [], []
    for reference in figures.references:
        if reference.matrix not in (None, figures.campaign.matrix):
            elsewhere.append(str(reference.matrix))
            continue
        found = [
            Band(reference, cell, *_figure(cell, reference.quantity))
            for cell in figures.cells
            if _has(cell, reference.quantity, figures.campaign.baseline)
            and _fits(reference, cell, specifications[_key(cell.axes)])
        ]
        bands += found
        if not found:
            unmatched.append(reference)
    return Judged(bands, unmatched, sorted(set(elsewhere)))


def _key(axes: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in axes.items() if name != "seed"}, sort_keys=True)


def _has(cell: Cell, quantity: str, baseline: str) -> bool:
    """Whether such a cell can have that figure at all."""
    if quantity in OVERHEADS:
        return cell.stack != baseline
    return cell.workers > 1 if quantity in ("speed_up", "efficiency") else True


def _fits(reference: Reference, cell: Cell, specification: RunSpec) -> bool:
    """Whether the cell has every value that the reference names, as an axis or as the same in all runs."""
    work, conditions = specification.work, specification.conditions
    for name, wanted in reference.axes.items():
        field = getattr(work, name, getattr(conditions, name, ABSENT))
        if isinstance(wanted, dict) and hasattr(field, "model_dump"):
            field = {key: value for key, value in field.model_dump().items() if key in wanted}
        if wanted not in (cell.axes.get(name, ABSENT), field):
            return False
    return True


def _figure(cell: Cell, quantity: str) -> tuple[float | None, int]:
    """The cell's figure, and how many runs it comes from."""
    if quantity == "accuracy":
        return (None, 0) if cell.accuracy is None else (cell.accuracy.accuracy, cell.accuracy.n)
    if quantity in ("train_s", "total_s"):
        found = cell.train_s if quantity == "train_s" else cell.total_s
        return (None, 0) if found is None else (found.mean, found.n)
    if quantity == "efficiency":
        return (None, 0) if cell.efficiency is None else (cell.efficiency.mean, cell.efficiency.n)
    ratio: Ratio | None = getattr(cell, quantity)
    if ratio is None:
        return None, 0
    return ratio.ratio - 1 if quantity in OVERHEADS else ratio.ratio, ratio.n


def band_table(judged: Judged) -> Table:
    """The references with what became of each."""
    rows = [
        [
            _cell(band.cell.axes),
            band.reference.quantity,
            _written(band.here, band.reference.quantity),
            _written(band.reference.value, band.reference.quantity),
            _band(band.reference),
            str(band.n),
            band.verdict,
        ]
        for band in judged.bands
    ] + [
        [
            _meant(each),
            each.quantity,
            NOTHING,
            _written(each.value, each.quantity),
            _band(each),
            "0",
            "fits no cell of this campaign",
        ]
        for each in judged.unmatched
    ]
    return Table(
        title="References",
        before=(
            "What the inventory says that a cell should take, against the mean over its n runs (of "
            "overheads, speed-up and efficiency: the geometric mean over n pairs of runs of the same seed). "
            "What left its band is marked."
        ),
        columns=[
            Column("cell"),
            Column("quantity"),
            *(Column(name, True) for name in ("here", "reference", "band", "n")),
            Column("so"),
        ],
        rows=rows,
        marked=[at for at, band in enumerate(judged.bands) if band.left],
    )


def band_rows(judged: Judged) -> list[dict[str, Any]]:
    """The references as rows of figures.csv and figures.parquet."""
    return [
        {"section": "references", "stack": band.cell.stack, "workers": band.cell.workers}
        | {"epochs": band.cell.axes["epochs"], "quantity": band.reference.quantity, "value": band.here}
        | {"runs": band.n, "reference": band.reference.value}
        | {"band_low": band.reference.low, "band_high": band.reference.high}
        for band in judged.bands
    ]


def band_conclusion(judged: Judged) -> list[str]:
    """The sentence for the report's top; none where no figure left its band."""
    if not judged.left:
        return []
    return [f"{_left(judged)}: see the references below."]


def show_bands(screen: Screen, judged: Judged) -> int:
    """Says on screen what left its band and which references fit nothing; the exit status, 1 or 0."""
    for band in judged.left:
        screen.line(f"Left its band: {band.sentence}", "bold red")
    for each in judged.unmatched:
        screen.line(
            f"Fits no cell of this campaign: the reference {_written(each.value, each.quantity)} for "
            f"{each.quantity} of {_meant(each)}.",
            "yellow",
        )
    if judged.elsewhere:
        screen.line(f"There are references for other matrices, too: {', '.join(judged.elsewhere)}.")
    if judged.left:
        screen.line(f"{_left(judged)}: the exit status is 1, whatever became of the runs.", "bold red")
    elif judged.bands:
        known = sum(band.here is not None for band in judged.bands)
        rest = len(judged.bands) - known
        screen.line(
            f"{known} of {len(judged.bands)} figures with a reference are within their bands"
            + (f", {rest} not known yet." if rest else ".")
        )
    return judged.exit_status


def _left(judged: Judged) -> str:
    left, known = len(judged.left), len(judged.bands)
    return f"{left} of {known} figures with a reference left {'its band' if left == 1 else 'their bands'}"


def _cell(axes: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in axes.items())


def _meant(reference: Reference) -> str:
    return _cell(reference.axes) or "every cell"


def _band(reference: Reference) -> str:
    quantity, low, high = reference.quantity, reference.low, reference.high
    if low is None:
        return f"at most {_written(high, quantity)}"
    if high is None:
        return f"at least {_written(low, quantity)}"
    return f"{_written(low, quantity)} to {_written(high, quantity)}"


def _written(value: float | None, quantity: str) -> str:
    if value is None:
        return NOTHING
    if quantity in OVERHEADS:
        return change_text(value)
    return f"{value:.{DIGITS[quantity]}f}"
