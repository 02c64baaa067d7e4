"""The bar chart: one bar for each cell, its training time inside its total time, as SVG as wide as the page.

Positions along a bar are percentages and text is in CSS pixels, so that it reads the same on a phone and on
paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

ROW: Final = 46  # px
BAR: Final = 16  # px
LABEL_BASE: Final = 16  # px from the top of a row to the foot of its label
BAR_TOP: Final = 23  # px from the top of a row


@dataclass(frozen=True)
class Bar:
    """One row of the chart, in seconds."""

    label: str
    train_s: float
    total_s: float
    baseline: bool  # shown in the baseline's colour


def bar_chart(bars: Sequence[Bar], title: str) -> str:
    """The chart as an <svg> element; "" without bars."""
    longest = max((max(bar.total_s, bar.train_s) for bar in bars), default=0.0)
    if longest <= 0:
        return ""
    rows = "".join(_row(bar, at * ROW, longest) for at, bar in enumerate(bars))
    return (
        f'<svg class="chart" width="100%" height="{ROW * len(bars)}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{rows}</svg>"
    )


def _row(bar: Bar, top: int, longest: float) -> str:
    train = bar.train_s / longest * 100
    rest = max(0.0, bar.total_s - bar.train_s) / longest * 100
    kind = "baseline" if bar.baseline else "other"
    place = f'y="{top + BAR_TOP}" height="{BAR}"'
    times = f"{bar.train_s:.1f} s of {bar.total_s:.1f} s"
    return (
        f'<text x="0" y="{top + LABEL_BASE}">{escape(bar.label)}</text>'
        f'<text x="100%" y="{top + LABEL_BASE}" text-anchor="end">{times}</text>'
        f'<rect class="track" x="0" {place} width="100%"/>'
        f'<rect class="rest" x="{train:.3f}%" {place} width="{rest:.3f}%"/>'
        f'<rect class="train {kind}" x="0" {place} width="{train:.3f}%"/>'
    )
