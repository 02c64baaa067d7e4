"""A campaign's figures against its inventory's references: which are within their bands, which left them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from experiments.analysis.figures import Cell, Figures
from experiments.analysis.statistics import Ratio
from experiments.matrix.model import OF_DATA
from experiments.matrix.references import OVERHEADS, Reference
from training.spec import RunSpec

ABSENT: Final = object()  # equals no axis's value


@dataclass(frozen=True)
class CheckedFigure:
    """One cell's figure against one reference."""

    reference: Reference
    cell: Cell
    here: float | None  # the mean over the cell's runs; None where there is none yet
    n: int  # runs it is the mean of; for ratios, seeds that both cells have

    @property
    def outcome(self) -> Literal["within", "outside", "not run", "nothing to compare with"]:
        """Where the figure lies; the last two if there is none."""
        if self.here is None:
            return "nothing to compare with" if self.cell.records else "not run"
        low, high = self.reference.low, self.reference.high
        outside = (low is not None and self.here < low) or (high is not None and self.here > high)
        return "outside" if outside else "within"

    @property
    def deviation(self) -> float | None:
        """How far the figure is above the reference, as a fraction of it; None without a figure."""
        value = self.reference.value
        return None if self.here is None else (self.here - value) / abs(value)


@dataclass(frozen=True)
class ReferenceCheck:
    """What the references say about a campaign."""

    checked: list[CheckedFigure]
    unmatched: list[Reference]  # for this matrix, or for any, that match none of its cells
    other_matrices: list[str]  # that the remaining references are for

    @property
    def outside(self) -> list[CheckedFigure]:
        """The figures that left their bands."""
        return [each for each in self.checked if each.outcome == "outside"]

    @property
    def exit_status(self) -> int:
        """1 if a figure left its band."""
        return 1 if self.outside else 0


def check_references(figures: Figures) -> ReferenceCheck:
    """Every cell that a reference is for, with its outcome, in the order of the references."""
    specifications = {
        _key(run.axes): run.specification for run in reversed(figures.campaign.measured)
    }  # of a cell's first run: only the seed differs
    checked, unmatched, elsewhere = [], [], []
    for reference in figures.references:
        if reference.matrix not in (None, figures.campaign.matrix):
            elsewhere.append(str(reference.matrix))
            continue
        found = [
            CheckedFigure(reference, cell, *_figure(cell, reference.quantity))
            for cell in figures.cells
            if _has(cell, reference.quantity, figures.campaign.baseline)
            and _fits(reference, cell, specifications[_key(cell.axes)])
        ]
        checked += found
        if not found:
            unmatched.append(reference)
    return ReferenceCheck(checked, unmatched, sorted(set(elsewhere)))


def _key(axes: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in axes.items() if name != "seed"}, sort_keys=True)


def _has(cell: Cell, quantity: str, baseline: str) -> bool:
    """Whether such a cell can have that figure at all."""
    if quantity in OVERHEADS:
        return cell.stack != baseline
    return cell.workers > 1 if quantity in ("speed_up", "efficiency") else True


def _fits(reference: Reference, cell: Cell, specification: RunSpec) -> bool:
    """Whether the cell has every value that the reference names, as an axis or in common with all runs."""
    work, conditions = specification.work, specification.conditions
    for name, wanted in reference.axes.items():
        field = getattr(work, name, getattr(conditions, name, ABSENT))
        if name.startswith(OF_DATA):
            field = getattr(work.data, name.removeprefix(OF_DATA), ABSENT)
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
