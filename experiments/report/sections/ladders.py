"""The ladders as a table and as waterfalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from experiments.analysis.ladders import SkippedRung, Step, Waterfall
from experiments.report.formats import P_VALUE, Format, Value, number, plain_interval, quantity, span
from experiments.report.names import ladder_name, phase_name
from experiments.report.narrow import is_narrow
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.report.verdict_words import corrected_text, step_verdict
from experiments.util.words import counted

COSTS, SAVES, UNKNOWN, WHOLE = "#d55e00", "#009e73", "#bbbbbb", "#0072b2"  # Okabe and Ito's, and a grey
INCHES_A_BAR: Final = 0.36
SECONDS: Final = Format(2, unit=" s")
CHANGE: Final = Format(2, signed=True)
SHARE: Final = Format(1, signed=True)


def ladders_table(found: Sequence[Waterfall]) -> Table:
    """Where an overhead comes from, step by step."""
    words = ("ladder", "from", "to", "phases that changed most, s", "what the step removes")
    return Table(
        title="Why",
        before=(
            "How many seconds of train_s each change, from one rung of a ladder to the next, removes: means "
            "of the differences between runs with the same seed, with Student's intervals. "
            f"{corrected_text([step.seconds.p for each in found for step in each.every_step])} "
            "The phases that changed most are means; nothing is claimed of them."
        ),
        columns=columns(
            *words[:3],
            "pairs",
            "seconds",
            "95 % interval, s",
            "% of the last rung measured",
            "95 % interval, %",
            "p (Bonferroni)",
            *words[3:],
            words=words,
        ),
        rows=[
            row
            for waterfall in found
            for row in (
                *(_row(waterfall, step) for step in waterfall.steps),
                *([_row(waterfall, waterfall.whole, _whole_mark(waterfall))] if waterfall.whole else []),
            )
        ],
        after=[
            f'{ladder_name(waterfall)}: the rung "{rung.label}" is left out. {_why_skipped(rung)}'
            for waterfall in found
            for rung in waterfall.skipped
        ]
        + [
            f"{ladder_name(waterfall)}: its rungs do not all have the same seeds, so the steps need not "
            "add up to the difference between its ends."
            for waterfall in found
            if len({step.seconds.n for step in waterfall.every_step}) > 1
        ],
    )


def _whole_mark(waterfall: Waterfall) -> str:
    return "all of it: " if waterfall.complete else "all that was measured: "


def _why_skipped(rung: SkippedRung) -> str:
    return {
        "no such run": "The matrix has no such run.",
        "impossible": rung.detail,
        "not yet": "None of its runs is ok yet.",
        "disturbed": f"Its runs are disturbed by {rung.detail}.",
        "stand-in": f"Its runs were made by a stand-in. {rung.detail}",
        "same run": f'On this cluster it is the same run as "{rung.detail}".',
        "no common seed": "None of its runs shares a seed with the rung before.",
    }[rung.reason]


def _row(waterfall: Waterfall, step: Step, mark: str = "") -> list[Value | str]:
    seconds, percent = step.seconds, step.percent
    return [
        ladder_name(waterfall),
        mark + step.above,
        step.below,
        run_count(seconds.n),
        Value(seconds.mean, CHANGE),
        plain_interval(seconds.low, seconds.high, CHANGE),
        Value(percent.mean if percent else None, SHARE),
        plain_interval(percent.low if percent else None, percent.high if percent else None, SHARE),
        Value(seconds.p, P_VALUE),
        ", ".join(f"{phase_name(name)} {number(change, CHANGE)}" for name, change in step.phases),
        step_verdict(step),
    ]


def draw_waterfalls(figure: Any, found: Sequence[Waterfall]) -> None:
    """Each ladder, from the excess of its first rung over its last down to zero; beside it, each step alone.

    In a narrow figure the steps are below it. The intervals are the steps', not those of what is left after
    them, so they are not in the waterfall.
    """
    narrow = is_narrow(figure)
    below = 2 if narrow else 1
    heights = [len(waterfall.steps) + 2 for waterfall in found for _ in range(below)]
    figure.set_figheight(sum(heights) * INCHES_A_BAR + 0.9 * len(heights))
    shape: Any = {} if narrow else {"sharey": "row", "width_ratios": [2, 1]}
    every = figure.subplots(len(heights), 2 // below, squeeze=False, height_ratios=heights, **shape)
    for (whole, steps), waterfall in zip(every.reshape(len(found), 2), found, strict=True):
        _draw(whole, waterfall)
        _draw_steps(steps, waterfall)
        if narrow:
            names = [_below(step) for step in waterfall.steps]
            steps.set_yticks(range(1, len(names) + 1), names)
            steps.set_ylim(len(names) + 0.5, 0.5)
        else:
            steps.tick_params(labelleft=False)


def _draw(axes: Any, waterfall: Waterfall) -> None:
    (first, start), (last, end) = waterfall.rungs[0], waterfall.rungs[-1]
    # Each step is the mean of its own pairs: if a rung lacks a seed, only their sum ends at the last rung.
    left = sum(step.seconds.mean for step in waterfall.steps)
    axes.barh(0, left, color=WHOLE)
    _write(axes, max(left, 0.0), 0, quantity(start.mean, SECONDS))
    labels = [first]
    for at, step in enumerate(waterfall.steps, start=1):
        removed = step.seconds.mean
        axes.barh(at, -removed, left=left, color=_colour(step))
        _write(axes, max(left, left - removed), at, quantity(-removed, replace(CHANGE, unit=" s")))
        labels.append(_below(step))
        left -= removed
    _write(axes, 0.0, len(labels), quantity(end.mean, SECONDS))
    labels.append(last)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    low, high = axes.dataLim.intervalx
    room = (high - low) or 1.0
    axes.set_xlim(low - 0.05 * room, high + 0.25 * room)  # on the right, room for the text beside the bars
    axes.axvline(0, color="#000000", linewidth=0.8)
    axes.set_title(ladder_name(waterfall), loc="left")
    axes.set_xlabel("train_s beyond the last rung's, s")
    axes.grid(axis="x", color="#dddddd")


def _draw_steps(axes: Any, waterfall: Waterfall) -> None:
    """What each step removes, with its interval."""
    for at, step in enumerate(waterfall.steps, start=1):
        seconds = step.seconds
        half = None if seconds.low is None else seconds.mean - seconds.low
        axes.errorbar(seconds.mean, at, xerr=half, fmt="o", capsize=3, color=_colour(step))
        if not step.certain:
            claim = f"{counted(seconds.n, 'pair')}" if half is None else "can't tell"
            axes.annotate(claim, (seconds.mean, at), xytext=(0, 5), textcoords="offset points", ha="center")
    axes.margins(x=0.25)  # for the text
    axes.axvline(0, color="#000000", linewidth=0.8)
    pairs = [step.seconds.n for step in waterfall.steps]
    axes.set_title(f"{span(pairs)} pair{'s' if max(pairs) > 1 else ''} per step", loc="left")
    axes.set_xlabel("what a step removes, s (95 %)")
    axes.grid(axis="x", color="#dddddd")


def _below(step: Step) -> str:
    return f"\N{RIGHTWARDS ARROW} {step.below}"


def _colour(step: Step) -> str:
    if not step.certain:
        return UNKNOWN
    return COSTS if step.seconds.mean > 0 else SAVES


def _write(axes: Any, x: float, y: int, text: str) -> None:
    axes.annotate(text, (x, y), xytext=(5, 0), textcoords="offset points", va="center")
