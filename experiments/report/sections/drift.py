"""Whether times drifted while the campaign ran."""

from __future__ import annotations

from typing import Final

from experiments.analysis.drift import LEAST, SHORTEST_H, Drift
from experiments.report.formats import TENTHS, Format, interval, number, quantity
from experiments.util.words import counted, listed

AN_HOUR: Final = Format(2, signed=True, factor=100, unit=" %")


def drift_sentences(drift: Drift) -> list[str]:
    """How much times changed by the hour, and what happened in between; nothing without a plot of it."""
    if not drift.runs:
        return []
    return [f"{_trend(drift)} {_events(drift)}"]


def _trend(drift: Drift) -> str:
    found, over = drift.trend, f"{counted(len(drift.runs), 'run')} over {number(drift.hours, TENTHS)} h"
    if found is None:
        if len(drift.runs) < LEAST:
            lacking = f"a trend needs {LEAST}"
        elif drift.hours < SHORTEST_H:
            lacking = f"a trend needs {number(SHORTEST_H, TENTHS)} h"
        else:
            lacking = "their times have no spread"
        return f"Whether times drifted can't be told from {over}: {lacking}."
    ends = interval(found.low, found.high, AN_HOUR)
    if found.certain:
        slope = quantity(found.slope, AN_HOUR)
        return f"Times drifted: train_s of equal work changed by {slope} an hour ({ends}; {over})."
    return f"No drift of times is shown: train_s of equal work changed by {ends} an hour; {over}."


def _events(drift: Drift) -> str:
    """Boots and later commands, as far as they are known."""
    unknown = [
        *([] if drift.boots_known else ["whether nodes booted"]),
        *([] if drift.commands_known else ["whether the campaign was resumed"]),
    ]
    happened = [
        *(f"{listed(boot.nodes)} booted before {number(boot.hours, TENTHS)} h" for boot in drift.boots),
        *(f"the campaign was resumed at {number(hours, TENTHS)} h" for hours in drift.resumed),
    ]
    if not happened and not unknown:
        return "In between no node booted, and the campaign was not resumed."
    said = [f"In between {listed(happened)}."] if happened else []
    return " ".join([*said, *([f"Not every run has noted {listed(unknown)} in between."] if unknown else [])])
