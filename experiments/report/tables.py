"""Tables of the report as data: each template only draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from experiments.analysis.comparisons import Compared, Parts
from experiments.analysis.figures import Cell, phase_names, setting_text
from experiments.analysis.statistics import Split
from experiments.util.words import counted

NOTHING: Final = "\N{EN DASH}"
MINUS: Final = "\N{MINUS SIGN}"
WEIGHTS_DIFFER: Final = "Equal work did NOT give equal weights, so nothing follows from these ratios. "
PHASE_NAMES: Final = {"exposed_sync": "exposed synchronisation"}


@dataclass(frozen=True)
class Column:
    """A column's head, and whether it holds numbers."""

    name: str
    number: bool = False


@dataclass(frozen=True)
class Table:
    """One section with a table."""

    title: str
    before: str  # a sentence or two above it
    columns: list[Column]
    rows: list[list[str]]
    after: list[str] = field(default_factory=list)  # remarks below it
    marked: list[int] = field(default_factory=list)  # rows that call for attention, from 0


def comparison_table(compared: list[Compared], baseline: str, weights_differ: bool = False) -> Table:
    """The stacks against the baseline; where equal work ended with different weights it warns."""
    rows = [
        [
            stack_text(each.cell.stack, setting_text(each.cell.axes)),
            str(each.cell.workers),
            *_epochs(each),
            str(each.ratio.n),
            f"{each.ratio.ratio:.3f}",
            interval_text(each.ratio.low, each.ratio.high, 3),
            p_text(each.corrected_p),
            p_text(each.ratio.equivalent_p),
            each.verdict,
        ]
        for each in compared
    ]
    names = [
        "pairs",
        f"train_s over {baseline}",
        "95 % interval",
        "p (Holm)",
        "p of 3 % or more (TOST, Holm)",
    ]
    return Table(
        title=f"Against {baseline}",
        before=(WEIGHTS_DIFFER if weights_differ else "")
        + (
            "Geometric means of the ratios of runs with the same seed, with Student's intervals of their "
            f"logarithms. {corrected_text([each.corrected_p for each in compared])}"
        ),
        columns=[
            Column("stack"),
            Column("workers", True),
            Column("epochs", True),
            *(Column(name, True) for name in names),
            Column("so"),
        ],
        rows=rows,
    )


def parts_table(found: list[Parts]) -> Table:
    """Fixed part and part per step."""
    return Table(
        title="Fixed and per step",
        before=(
            "A line through train_s at different lengths: what training itself costs once (without the "
            "stack's start: see Where the time goes), and what in every step, evaluations shared out over "
            "the steps. It is the mean of one line for each seed with every length, ± half a 95 % interval; "
            "without two such seeds it is a line through all runs, and has none. The dissertation's line "
            "goes through a mean of five runs and a single run."
        ),
        columns=[
            Column("stack"),
            Column("workers", True),
            *(
                Column(name, True)
                for name in (
                    "runs",
                    "fixed, s",
                    "per step, ms",
                    "dissertation: fixed, s",
                    "dissertation: per step, ms",
                )
            ),
        ],
        rows=[
            [_named(each), str(each.workers), str(each.here.n), *_split(each.here), *_split(each.there)]
            for each in found
        ],
    )


def phases_table(cells: Sequence[Cell]) -> Table:
    """Where the time of every cell goes."""
    shown = [(cell, cell.phases) for cell in cells if cell.phases is not None]
    phases_shown = phase_names(cells)
    names = ["workers", "epochs", "runs", *(PHASE_NAMES.get(name, name) for name in phases_shown), "total_s"]
    return Table(
        title="Where the time goes",
        before=(
            "Seconds of the slowest rank, means over the runs of a cell; they add up to total_s. What has no "
            "name of its own is under other, Ansible's work before and after the stack's own included."
        ),
        columns=[Column("stack"), *(Column(name, True) for name in names)],
        rows=[
            [
                stack_text(cell.stack, setting_text(cell.axes)),
                str(cell.workers),
                str(cell.axes["epochs"]),
                str(sum(record.phases is not None for record in cell.records)),
                *(_seconds(phases.get(name, 0.0)) for name in phases_shown),
                _seconds(sum(phases.values())),
            ]
            for cell, phases in shown
        ],
    )


def _seconds(value: float) -> str:
    return f"{value:.2f}".replace("-", MINUS)


def stack_text(stack: str, setting: str) -> str:
    """A stack as a table names it, with the values of the matrix's other axes."""
    return f"{stack}, {setting}" if setting else stack


def _named(part: Parts) -> str:
    return stack_text(part.stack, part.setting)


def _epochs(each: Compared) -> list[str]:
    return [str(each.cell.axes["epochs"])]


def interval_text(low: float | None, high: float | None, digits: int) -> str:
    """`0.98 to 1.02`."""
    if low is None or high is None:
        return NOTHING
    return f"{low:.{digits}f} to {high:.{digits}f}"


def change_text(value: float) -> str:
    """A fraction more or less: `+12.3 %`."""
    return f"{value * 100:+.1f} %".replace("-", MINUS)


def corrected_text(p_values: Sequence[float | None]) -> str:
    """For how many comparisons the p values of a table are corrected; single pairs are none."""
    made = sum(p is not None for p in p_values)
    if not made:
        return "There are single pairs only: none is a comparison, and nothing has a p."
    single = len(p_values) - made
    beside = f" ({counted(single, 'single pair')} beside, without a p)" if single else ""
    if made == 1:
        return f"One comparison is made here{beside}, and p needs no correction."
    return f"p is corrected for the {made} comparisons made here{beside}."


def p_text(value: float | None) -> str:
    """A p value, no more exact than it means anything."""
    if value is None:
        return NOTHING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _split(found: Split | None) -> list[str]:
    if found is None:
        return [NOTHING, NOTHING]
    return [
        with_half(found.fixed_s, found.fixed_half, 1),
        with_half(found.step_s * 1000, None if found.step_half is None else found.step_half * 1000, 2),
    ]


def with_half(value: float, half: float | None, digits: int) -> str:
    """`12.3 ± 0.4`, or without a half width `12.3`."""
    return f"{value:.{digits}f}" if half is None else f"{value:.{digits}f} ± {half:.{digits}f}"
