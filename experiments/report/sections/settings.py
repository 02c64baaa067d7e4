"""What a setting brings: cells that differ in one axis only, held against that axis's first value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from experiments.analysis.figures import Cell, Figures, setting_text, value_text
from experiments.analysis.pairing import paired_by_seed, time_ratio
from experiments.analysis.statistics import Ratio, ratios_together
from experiments.analysis.verdicts import verdict
from experiments.report.tables import Column, Table, corrected_text, interval_text, p_text

SHOWN_ELSEWHERE: Final = ("stack", "workers", "epochs")
OF_BLOCKS: Final = ("link_rate", "pinning", "device")  # by which a plan parts its blocks


@dataclass(frozen=True)
class Setting:
    """A cell against the one that has an axis's first value, and all else alike."""

    axis: str
    cell: Cell
    first: Any
    ratio: Ratio
    verdict: str

    @property
    def corrected_p(self) -> float | None:
        """By Holm, for all comparisons of settings; None with one pair."""
        return self.ratio.p


def settings(figures: Figures) -> list[Setting]:
    """Every comparison of settings that the runs allow, in the order of the matrix; a ladder has its own."""
    found = []
    first = figures.cells[0].axes if figures.cells and not figures.campaign.ladders else {}
    for axis in (name for name in first if name not in SHOWN_ELSEWHERE):
        for cell in figures.cells:
            base = next(
                (each for each in figures.cells if each.axes == cell.axes | {axis: first[axis]}), None
            )
            if base is None or base is cell:
                continue
            ratio = time_ratio(paired_by_seed(cell.records, base.records))
            if ratio is not None:
                found.append((axis, cell, first[axis], ratio))
    together = ratios_together([ratio for *_, ratio in found])
    return [
        Setting(axis, cell, value, ratio, verdict(ratio, ratio.p))
        for (axis, cell, value, _), ratio in zip(found, together, strict=True)
    ]


def settings_table(found: list[Setting]) -> Table:
    """The settings against one another."""
    names = ["pairs", "train_s, ratio", "95 % interval", "p (Holm)"]
    return Table(
        title="What the settings bring",
        before=(
            "Runs of the same seed that differ in one setting only: its value against the first one of the "
            f"matrix. {corrected_text([each.corrected_p for each in found])}"
        ),
        columns=[
            Column("setting"),
            Column("value"),
            Column("against"),
            Column("where"),
            *(Column(name, True) for name in names),
            Column("so"),
        ],
        rows=[
            [
                each.axis,
                value_text(each.cell.axes[each.axis]),
                value_text(each.first),
                where_text(each),
                str(each.ratio.n),
                f"{each.ratio.ratio:.3f}",
                interval_text(each.ratio.low, each.ratio.high, 3),
                p_text(each.corrected_p),
                each.verdict,
            ]
            for each in found
        ],
        after=[
            f"Runs that differ in {axis} are of different blocks: what else changed on the machines between "
            "these is in the difference."
            for axis in OF_BLOCKS
            if any(each.axis == axis for each in found)
        ],
    )


def where_text(each: Setting) -> str:
    """What the two runs have in common."""
    cell = each.cell
    rest = setting_text(cell.axes, without=each.axis)
    told = f"{cell.stack}, workers {cell.workers}, epochs {cell.axes['epochs']}"
    return f"{told}, {rest}" if rest else told
