"""The answer to the dissertation's question over several campaigns, as a page with one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from experiments.analysis.answer import Answer, Sum, Suspect, total
from experiments.analysis.statistics import Difference
from experiments.report.formats import Format, Value, interval, quantity
from experiments.report.names import value_text
from experiments.report.plots import render
from experiments.report.sections.factors import ITSELF
from experiments.report.tables import Table, columns
from experiments.report.writer import render_page
from experiments.util.files import write_whole
from experiments.util.words import counted, listed

TITLE: Final = "Why: the suspects, one by one"
MS: Final = Format(1, unit=" ms")
WHOLE_MS: Final = Format(unit=" ms")
SECONDS: Final = Format(1, unit=" s")
UNEXPLAINED: Final = "unexplained"
FOUND, OPEN, LINE = "#0072b2", "#bbbbbb", "#d55e00"  # Okabe and Ito's, and a grey
INCHES_A_BAR: Final = 0.32
KINDS: Final = {
    "training": "real training",
    "simulated": "a simulated accelerator",
    "script": "a script with a loop of its own",
}


@dataclass(frozen=True)
class _Section:
    """What the page says of a stack."""

    title: str
    text: str
    steps: Table
    once: Table


def write_answer(found: Sequence[Answer], folder: Path) -> list[Path]:
    """Writes answer.md and the picture in it, answer.svg, into a folder, which is made; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = render("answer", lambda figure: _draw(figure, found))["answer.svg"]
    content = {
        "title": TITLE,
        "before": _before(found),
        "shows": "What each suspect adds to a step, and each part of a run once, beside the dissertation.",
        "stacks": [_section(each) for each in found],
        "sections": [],  # of the report, to which a table's cells may link
    }
    written: dict[str, str | bytes] = {
        "answer.md": render_page("answer.md.j2", content, html=False),
        "answer.svg": picture,
    }
    for name, text in written.items():
        write_whole(folder / name, text)
    return [folder / name for name in written]


def unexplained(published: Mapping[int, float], explained: Sum) -> Sum:
    """What is left of the dissertation's figures, which are one for each number of workers."""
    there = list(published.values())
    return Sum(
        sum(there) / len(there) - explained.mean, min(there) - explained.high, max(there) - explained.low
    )


def _before(found: Sequence[Answer]) -> str:
    campaigns = list(dict.fromkeys(each.campaign for answer in found for each in answer.suspects))
    return (
        f"Campaigns: {listed(campaigns)}. Each factor is measured on {found[0].baseline} and on another "
        "stack. Only what the other one pays more for it can explain why it was slower. Intervals hold all "
        "at once within a campaign (95 %, Bonferroni). Of each factor the best evidence counts: training "
        "before a simulation, and that before a script; then the narrower interval; and of several values "
        "the one that can explain most. The ends of a sum are the sums of the intervals' ends, so it is "
        "certain rather than sharp. What is left of the dissertation's figure is unexplained."
    )


def _section(answer: Answer) -> _Section:
    return _Section(answer.stack, _text(answer), _steps_table(answer), _once_table(answer))


def _text(answer: Answer) -> str:
    there = answer.published
    text = (
        f"In the dissertation a step of {answer.stack} took {_range(there.step_ms, MS)} more than one of "
        f"{answer.baseline}, and a run {_range(there.once_s, SECONDS)} more once."
    )
    if not answer.counted:
        return f"{text} No run here says anything about a step."
    explained, factors = answer.explained_ms, sum(bool(each.factor) for each in answer.counted)
    left = unexplained(there.step_ms, explained)
    what = f", and what it pays more for {counted(factors, 'factor')}, add up to" if factors else " is"
    text = (
        f"{text} Here, what the stack adds by itself{what} {quantity(explained.mean, MS)} a step "
        f"({interval(explained.low, explained.high, MS)})."
    )
    if left.low > 0:
        return f"{text} So at least {quantity(left.low, WHOLE_MS)} have a cause that was not measured here."
    return f"{text} That is not sharp enough to say that anything is left."


def _range(published: Mapping[int, float], form: Format) -> str:
    return interval(min(published.values()), max(published.values()), form)


def _steps_table(answer: Answer) -> Table:
    words = ("suspect", "value", "against", "campaign", "measured with", "counted")
    return Table(
        title=answer.stack,
        before="",
        columns=columns(
            *("suspect", "value", "against", "campaign", "measured with", "workers", "pairs"),
            *(f"on {answer.baseline}, ms", f"more on {answer.stack}, ms", "counted"),
            words=words,
        ),
        rows=[_step_row(each, counts=each in answer.counted) for each in answer.suspects],
    )


def _step_row(suspect: Suspect, *, counts: bool) -> list[Value | str]:
    return [
        suspect.factor or ITSELF,
        value_text(suspect.value) if suspect.factor else "",
        value_text(suspect.first) if suspect.factor else "",
        suspect.campaign,
        KINDS[suspect.kind],
        Value(suspect.workers),
        Value(suspect.more.n),
        _value(suspect.on_baseline, MS) if suspect.on_baseline else "",
        _value(suspect.more, MS),
        "yes" if counts else "",
    ]


def _once_table(answer: Answer) -> Table:
    added = answer.once
    where = (
        "The parts of a run that don't grow with the work, with "
        f"{counted(added.baseline.workers, 'worker')}; each interval is that of its own difference alone."
        if added
        else "No run here says anything about what it takes once."
    )
    return Table(
        title=answer.stack,
        before=where,
        columns=columns("part", f"more on {answer.stack}, s", words=("part",)),
        rows=[[name, _value(part, SECONDS)] for name, part in answer.parts.items()],
    )


def _value(found: Difference, form: Format) -> Value:
    return Value(found.mean, replace(form, signed=True, unit=""), low=found.low, high=found.high)


def _draw(figure: Any, found: Sequence[Answer]) -> None:
    """For each stack: its suspects in ms a step, and its parts in seconds once."""
    heights = [max(len(each.counted), len(each.parts)) + 2 for each in found]
    figure.set_size_inches(9, sum(heights) * INCHES_A_BAR + 0.9 * len(found))
    every = figure.subplots(len(found), 2, squeeze=False, height_ratios=heights)
    for (steps, once), answer in zip(every, found, strict=True):
        suspects = {each.factor or ITSELF: each.more for each in answer.counted}
        _bars(steps, suspects, answer.published.step_ms)
        steps.set_title(f"{answer.stack}: ms a step more than {answer.baseline}", loc="left")
        _bars(once, answer.parts, answer.published.once_s)
        once.set_title(f"{answer.stack}: seconds more once", loc="left")


def _bars(axes: Any, found: Mapping[str, Difference], published: Mapping[int, float]) -> None:
    left = unexplained(published, total(list(found.values())))
    rows = [(name, total([each]), FOUND) for name, each in found.items()]
    rows.append((UNEXPLAINED, left, OPEN))
    for at, (_, each, colour) in enumerate(rows):
        error = [[each.mean - each.low], [each.high - each.mean]]
        axes.barh(at, each.mean, xerr=error, capsize=3, color=colour)
    axes.axvspan(min(published.values()), max(published.values()), color=LINE, alpha=0.25)
    axes.axvline(sum(published.values()) / len(published), color=LINE, linewidth=1.2)
    axes.axvline(0, color="#000000", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("line: the dissertation, over its numbers of workers")
    axes.grid(axis="x", color="#dddddd")
