"""The bar chart: one bar for each cell, its training time inside its total time, as wide as the page.

Each bar is an SVG whose positions are percentages, below a line of text that wraps, so that it reads the
same on a phone and on paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

BAR: Final = 16  # px
DOT: Final = 2.5  # px, its radius


@dataclass(frozen=True)
class Bar:
    """One row of the chart, in seconds."""

    label: str
    train_s: float
    total_s: float
    baseline: bool  # shown in the baseline's colour
    runs: Sequence[float] = ()  # training times of single runs, one dot each


def bar_chart(bars: Sequence[Bar], title: str) -> str:
    """The chart as an element; "" without bars."""
    longest = max((max(bar.total_s, bar.train_s, *bar.runs) for bar in bars), default=0.0)
    if longest <= 0:
        return ""
    rows = "".join(_row(bar, longest) for bar in bars)
    return f'<div class="chart" role="group" aria-label="{escape(title)}">{rows}</div>'


def _row(bar: Bar, longest: float) -> str:
    train = bar.train_s / longest * 100
    rest = max(0.0, bar.total_s - bar.train_s) / longest * 100
    kind = "baseline" if bar.baseline else "other"
    place = f'y="0" height="{BAR}"'
    dots = "".join(
        f'<circle cx="{seconds / longest * 100:.3f}%" cy="{BAR / 2:g}" r="{DOT}"/>' for seconds in bar.runs
    )
    times = f"{bar.train_s:.1f} s of {bar.total_s:.1f} s"
    return (
        f"<p><span>{escape(bar.label)}</span> <span>{times}</span></p>"
        f'<svg width="100%" height="{BAR}" aria-hidden="true">'
        f'<rect class="track" x="0" {place} width="100%"/>'
        f'<rect class="rest" x="{train:.3f}%" {place} width="{rest:.3f}%"/>'
        f'<rect class="train {kind}" x="0" {place} width="{train:.3f}%"/>{dots}</svg>'
    )
