"""A table of trials, as CSV: what was hidden, what was named, and how they compare."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tests.blind.trial import Verdict, interval


@dataclass(frozen=True)
class Row:
    """One trial; costs are in the named measure's unit."""

    seed: int
    fault: str
    dose: float
    named: str  # empty: nothing was
    measure: str
    cost: str  # the estimate with its interval, as text
    noise_floor: str
    size: str  # what the fault costs, found without the analysis
    right: str  # yes, no


def kept(file: Path) -> list[Row]:
    """The trials of a table; none if there is no file yet.

    Raises:
        ValueError: it has other columns.
    """
    if not file.exists():
        return []
    columns = [field.name for field in fields(Row)]
    with file.open(encoding="utf-8", newline="") as text:
        rows = csv.DictReader(text)
        if rows.fieldnames != columns:
            raise ValueError(f"{file} is no table of trials: its columns are not {', '.join(columns)}.")
        return [
            Row(**(row | {"seed": int(row["seed"]), "dose": float(row["dose"])}))  # type: ignore[arg-type]
            for row in rows
        ]


def keep(file: Path, seed: int, verdict: Verdict) -> None:
    """Add a trial to a table, which is made if it is missing."""
    named, size = verdict.found.named, verdict.size
    row = Row(
        seed=seed,
        fault=verdict.fault.name,
        dose=round(verdict.fault.dose, 3),
        named=named.name if named else "",
        measure=named.measure if named else "",
        cost=interval(named.cost) if named else "",
        noise_floor=f"{named.cost.floor:.3f}" if named else "",
        size=interval(size) if size else "",
        right="yes" if verdict.right else "no",
    )
    new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as text:
        rows = csv.DictWriter(text, asdict(row).keys(), lineterminator="\n")
        if new:
            rows.writeheader()
        rows.writerow(asdict(row))
