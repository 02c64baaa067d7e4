"""A table of trials, as CSV: what was hidden, what was named, and how they compare."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from tests.blind.design import name_of
from tests.blind.faults import Plan
from tests.blind.trial import Verdict, interval

IMPOSSIBLE: Final = "not possible here"
UNITS: Final = {"step_ms": "ms a step", "fixed_s": "s in train_s", "launch_s": "s outside it", "": ""}
HEADER: Final = (
    "| job | fault | seed | factors x blocks | sized at, floors | really cost | named | cost | unit "
    "| noise floor | right |\n"
    "|---|---|--:|---|--:|---|---|---|---|--:|---|"
)


@dataclass(frozen=True)
class Row:
    """One trial; costs are in the named measure's unit."""

    seed: int
    job: str
    fault: str
    answer: str  # what should be named
    equalised: int  # factors
    blocks: int
    floors: float  # noise floors that it was to cost
    dose: str
    floors_at: str  # when the noise floors were measured, in UTC
    named: str  # empty: nothing was
    measure: str
    cost: str  # the estimate with its interval, as text
    noise_floor: str
    size: str  # what the fault costs, found without the attribution
    right: str  # yes, no, not possible here
    reason: str  # why it was not possible


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
        numbers = {"seed": int, "equalised": int, "blocks": int, "floors": float}
        return [
            Row(**(row | {name: kind(row[name]) for name, kind in numbers.items()}))  # type: ignore[arg-type]
            for row in rows
        ]


def row_of(seed: int, verdict: Verdict) -> Row:
    """A trial's row."""
    named, size = verdict.found.named, verdict.size
    return Row(
        seed=seed,
        job=verdict.plan.kind,
        fault=verdict.fault.name,
        answer=verdict.plan.answer,
        equalised=len(verdict.plan.factors),
        blocks=verdict.plan.blocks,
        floors=verdict.plan.floors,
        dose=f"{verdict.fault.dose:.3f}",
        floors_at=verdict.floors_at.isoformat(timespec="minutes"),
        named=name_of(named) if named else "",
        measure=named.measure if named else "",
        cost=interval(named.cost) if named else "",
        noise_floor=f"{named.cost.floor:.3f}" if named else "",
        size=interval(size) if size else "",
        right="yes" if verdict.right else "no",
        reason="",
    )


def impossible(seed: int, plan: Plan, reason: str) -> Row:
    """The row of a trial that this machine can't make."""
    nothing = dict.fromkeys(("dose", "floors_at", "named", "measure", "cost", "noise_floor", "size"), "")
    return Row(
        seed=seed,
        job=plan.kind,
        fault=plan.name,
        answer=plan.answer,
        equalised=len(plan.factors),
        blocks=plan.blocks,
        floors=plan.floors,
        right=IMPOSSIBLE,
        reason=reason,
        **nothing,
    )


def keep(file: Path, row: Row) -> None:
    """Add a trial to a table, which is made if it is missing."""
    new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as text:
        rows = csv.DictWriter(text, asdict(row).keys(), lineterminator="\n")
        if new:
            rows.writeheader()
        rows.writerow(asdict(row))


def as_table(rows: Sequence[Row]) -> str:
    """Trials as a table in Markdown, by fault and seed."""
    lines = [HEADER]
    for row in sorted(rows, key=lambda each: (each.job, each.fault, each.seed)):
        begin = (
            f"| {row.job} | `{row.fault}` | {row.seed} | {row.equalised} x {row.blocks} | {row.floors:g} |"
        )
        if row.right == IMPOSSIBLE:
            lines.append(f"{begin} {IMPOSSIBLE} | | | | | |")
        else:
            said = f"{row.named or 'nothing'} | {row.cost} | {UNITS[row.measure]} | {row.noise_floor}"
            lines.append(f"{begin} {row.size} | {said} | {row.right} |")
    return "\n".join(lines)


def counted(rows: Sequence[Row]) -> str:
    """How many trials were right, in a sentence."""
    made = [row for row in rows if row.right != IMPOSSIBLE]
    named = [row for row in made if row.named == row.answer]
    nothing = sum(not row.named for row in made)
    right = sum(row.right == "yes" for row in named)
    others = len(made) - len(named) - nothing
    return (
        f"In {len(named)} of {len(made)} trials the right cause was named, in {right} of them with a "
        f"cost that is not told from the real one; in {others} another one was, in {nothing} nothing."
    )
