"""The pictures of the answer: one for real training, beside the dissertation, and one for each other kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from experiments.analysis.answer import Answer, unexplained
from experiments.analysis.step_samples import PUBLISHED, Samples
from experiments.analysis.suspects import KINDS, Kind, Sum, Suspect
from experiments.report.formats import number
from experiments.report.names import value_text
from experiments.report.narrow import is_narrow
from experiments.report.plots import Drawing, render, render_narrow
from experiments.report.sections.factors import ITSELF

FACTORS: Final = {"release": "another release"}
UNEXPLAINED: Final = "unexplained"
FOUND, NOT_REAL, OPEN, LINE = "#0072b2", "#cc79a7", "#bbbbbb", "#d55e00"  # Okabe and Ito's, and a grey
INCHES_A_BAR: Final = 0.32
ROOM: Final = 1.25  # times what is published is shown, so that it does not stand at the edge
MARGIN: Final = 0.04  # on each side, of what is shown
PICTURES: Final[dict[Kind, str]] = {
    "training": "answer",
    "simulated": "answer-simulated",
    "script": "answer-script",
}
MARKS: Final[dict[Kind, str]] = {"training": "", "simulated": " (simulated)", "script": " (a script's)"}


def answer_plots(found: Sequence[Answer]) -> dict[str, bytes]:
    """Every picture by file name."""
    drawn = answer_drawings(found)
    return {name: data for title, draw in drawn.items() for name, data in render(title, draw).items()}


def narrow_answer_plots(found: Sequence[Answer]) -> dict[str, bytes]:
    """The same for a phone, as SVG alone."""
    return {f"{title}.svg": render_narrow(draw) for title, draw in answer_drawings(found).items()}


def answer_drawings(found: Sequence[Answer]) -> dict[str, Drawing]:
    """What draws each picture; of kinds that say nothing of any stack there is none."""
    drawn: dict[str, Drawing] = {PICTURES["training"]: partial(_beside, found=found)}
    for kind in KINDS[1:]:
        those = [each for each in found if each.counted(kind)]
        if those:
            drawn[PICTURES[kind]] = partial(_alone, found=those, kind=kind)
    return drawn


def suspect_text(suspect: Suspect) -> str:
    """A factor or a part of a run, in words; nothing for the stack itself."""
    return FACTORS.get(suspect.factor, suspect.factor)


def _beside(figure: Any, found: Sequence[Answer]) -> None:
    """For each stack: its suspects in ms a step, and what it takes once, beside the dissertation."""
    every = _panels(figure, [max(len(each.counted("training")), len(each.counted_once)) for each in found], 2)
    for (steps, once), answer in zip(every, found, strict=True):
        of_step, of_run = answer.counted("training"), answer.counted_once
        for axes, counts, published in (
            (steps, of_step, answer.published.step_ms),
            (once, of_run, answer.published.once_s),
        ):
            left = unexplained(published, counts)
            rows = [(_label(each), each.measured, FOUND) for each in counts]
            _bars(axes, [*rows, (UNEXPLAINED, left, OPEN)])
            _show(axes, [each.measured for each in counts], published.values(), (len(rows), left))
            axes.axvspan(min(published.values()), max(published.values()), color=LINE, alpha=0.25)
            axes.axvline(sum(published.values()) / len(published), color=LINE, linewidth=1.2)
        steps.set_title(f"{answer.stack}: ms a step more than {answer.baseline}", loc="left")
        steps.set_xlabel(f"orange: the dissertation {_samples(PUBLISHED)}")
        once.set_title(f"{answer.stack}: seconds more once", loc="left")
        once.set_xlabel("orange: the dissertation")


def _show(axes: Any, measured: Iterable[Sum], published: Iterable[float], last: tuple[int, Sum]) -> None:
    """Show what was measured and published; the last bar's whiskers may go on beyond, to the ends written."""
    ends = [0.0, *(each * ROOM for each in published)]
    ends += [end for each in measured for end in (each.low, each.high)]
    margin = (max(ends) - min(ends)) * MARGIN
    low, high = min(ends) - margin, max(ends) + margin
    axes.set_xlim(low, high)
    at, bar = last
    if bar.low < low:
        axes.text(low, at, f" ← {number(bar.low)}", ha="left", va="bottom")
    if bar.high > high:
        axes.text(high, at, f"{number(bar.high)} → ", ha="right", va="bottom")


def _alone(figure: Any, found: Sequence[Answer], kind: Kind) -> None:
    """For each stack: its suspects in ms a step, beside nothing."""
    every = _panels(figure, [len(each.counted(kind)) for each in found], 1)
    for (axes,), answer in zip(every, found, strict=True):
        _bars(axes, [(_label(each), each.measured, NOT_REAL) for each in answer.counted(kind)])
        axes.set_title(f"{answer.stack}: ms a step{MARKS[kind]} more than {answer.baseline}", loc="left")


def _panels(figure: Any, bars: Sequence[int], columns: int) -> Any:
    """A row of axes for each stack; in a narrow figure those of a row are below one another."""
    below = columns if is_narrow(figure) else 1
    heights = [each + 2 for each in bars for _ in range(below)]
    figure.set_figheight(sum(heights) * INCHES_A_BAR + 0.9 * len(heights))
    every = figure.subplots(len(heights), columns // below, squeeze=False, height_ratios=heights)
    return every.reshape(len(bars), columns)


def _label(suspect: Suspect) -> str:
    words = [suspect_text(suspect) or ITSELF]
    words += [value_text(suspect.value)] if suspect.value is not None else []
    words += [_samples(suspect.samples)] if suspect.samples is not None else []
    return " ".join(words)


def _samples(samples: Samples) -> str:
    """How many samples a step trains on, and how many it evaluates."""
    return f"[{number(samples.trained)} + {number(samples.evaluated)}]"


def _bars(axes: Any, rows: Sequence[tuple[str, Sum, str]]) -> None:
    for at, (_, each, colour) in enumerate(rows):
        error = [[each.mean - each.low], [each.high - each.mean]]
        axes.barh(at, each.mean, xerr=error, capsize=3, color=colour)
    axes.axvline(0, color="#000000", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", color="#dddddd")
