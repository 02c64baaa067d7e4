"""The inventory's references, and which figures left their bands."""

from __future__ import annotations

from typing import Any, Final

from experiments.analysis.references import CheckedFigure, ReferenceCheck
from experiments.matrix.references import OVERHEADS, Reference
from experiments.report.formats import CHANGE, PERCENT, Format, Value, interval, plain_interval, quantity
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns

FORMATS: Final = {
    "train_s": Format(2),
    "total_s": Format(2),
    "accuracy": Format(4),
    "speed_up": Format(3),
    "efficiency": Format(3),
} | dict.fromkeys(OVERHEADS, CHANGE)
"""By quantity."""
UNMATCHED: Final = "fits no cell of this campaign"
DEVIATION: Final = Format(1, factor=100, unit=PERCENT.unit)


def references_table(found: ReferenceCheck) -> Table:
    """The references, each with its outcome."""
    checked: list[list[Value | str]] = [
        [
            cell_text(each.cell.axes),
            each.reference.quantity,
            Value(each.here, FORMATS[each.reference.quantity]),
            *_reference(each.reference),
            run_count(each.n),
            outcome_text(each),
        ]
        for each in found.checked
    ]
    unmatched: list[list[Value | str]] = [
        [meant(each), each.quantity, Value(None), *_reference(each), Value(0), UNMATCHED]
        for each in found.unmatched
    ]
    return Table(
        title="References",
        before=(
            "The inventory's reference for each cell, against the mean over its n runs (for overheads, "
            "speed-up and efficiency: the geometric mean over n pairs of runs with the same seed). Figures "
            "that left their bands are marked."
        ),
        columns=columns(
            *("cell", "quantity", "here", "reference", "band", "n", "verdict"),
            words=("cell", "quantity", "verdict"),
        ),
        rows=[*checked, *unmatched],
        marked=[at for at, each in enumerate(found.checked) if each.outcome == "outside"],
    )


def _reference(reference: Reference) -> list[Value]:
    form = FORMATS[reference.quantity]
    return [Value(reference.value, form), plain_interval(reference.low, reference.high, form)]


def references_conclusion(found: ReferenceCheck) -> list[str]:
    """The sentence for the report's top; empty if no figure left its band."""
    return [f"{outside_text(found)}: see the references below."] if found.outside else []


def outcome_text(each: CheckedFigure) -> str:
    """A figure's outcome, in a few words."""
    if each.outcome == "outside" and each.deviation is not None:
        side = "above" if each.deviation > 0 else "below"
        return f"outside: {quantity(abs(each.deviation), DEVIATION)} {side} the reference"
    return "nothing to compare with yet" if each.outcome == "nothing to compare with" else each.outcome


def checked_text(each: CheckedFigure) -> str:
    """Cell, figure, reference and band in one line."""
    reference = each.reference
    name, form = reference.quantity, FORMATS[reference.quantity]
    band = interval(reference.low, reference.high, form)
    return (
        f"{cell_text(each.cell.axes)}: {name} is {quantity(each.here, form)} (n = {each.n}), the reference "
        f"{quantity(reference.value, form)}, its band {band}; {outcome_text(each)}."
    )


def outside_text(found: ReferenceCheck) -> str:
    """`1 of 3 figures with a reference left its band`."""
    outside = len(found.outside)
    band = "its band" if outside == 1 else "their bands"
    return f"{outside} of {len(found.checked)} figures with a reference left {band}"


def cell_text(axes: dict[str, Any]) -> str:
    """The given axes, such as `workers 1, epochs 2`."""
    return ", ".join(f"{name} {value}" for name, value in axes.items())


def meant(reference: Reference) -> str:
    """The cells that a reference is for."""
    return cell_text(reference.axes) or "every cell"
