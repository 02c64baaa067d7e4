"""The report in one minute: five questions, each with as much of an answer as the runs allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from experiments.analysis.added import Added, certain
from experiments.analysis.analysis import Analysis
from experiments.analysis.figures import Cell
from experiments.report.formats import RATIO, Format, interval, number
from experiments.report.names import cells_name, envelope
from experiments.report.sections.conclusions import (
    NOT_OF_TIMES,
    SIMULATED,
    times_sentence,
    weights_sentence,
)
from experiments.report.sections.findings import setting_sentences
from experiments.report.sections.growth import growth_sentences
from experiments.report.sections.own_clock import own_clock_sentences
from experiments.report.sections.stack_comparisons import doubt_of, excluded_sentences
from experiments.util.words import listed

TITLE: Final = "In one minute"
GROWS: Final = "How does a step grow?"
EXCLUDED: Final = "What is excluded?"
MORE: Final = Format(1, signed=True)


@dataclass(frozen=True)
class Answer:
    """A question that a reader has, and what the runs say."""

    question: str
    text: str


def in_one_minute(analysis: Analysis) -> list[Answer]:
    """The questions and their answers; without those about times, if nothing follows from times.

    If the intervals exclude what the dissertation's stacks add to a step, that comes first; before it, if
    training was simulated, that it was.
    """
    if analysis.figures.campaign.simulated:
        return [Answer("What was trained?", SIMULATED), *_answers(analysis)]
    return _answers(analysis)


def _answers(analysis: Analysis) -> list[Answer]:
    figures, baseline = analysis.figures, analysis.figures.campaign.baseline
    same = Answer("The same work?", weights_sentence(figures))
    if figures.weights_differ or figures.unproven:
        return [same, Answer("How much slower in training?", NOT_OF_TIMES)]
    own_clock = [] if doubt_of(figures) else own_clock_sentences(analysis.own_clock)
    settings = [] if analysis.comparisons else setting_sentences(analysis.settings)
    slower = " ".join([*own_clock, *(settings or [times_sentence(analysis.comparisons, baseline)])])
    others = [
        same,
        Answer("How much slower in training?", slower),
        *([Answer(GROWS, " ".join(grows))] if (grows := growth_sentences(analysis.growth)) else []),
        Answer("And in all?", _in_all(figures.cells, baseline)),
        Answer("Where?", _where(analysis.added, baseline)),
    ]
    if excluded := [] if doubt_of(figures) else excluded_sentences(analysis.comparisons):
        return [Answer(EXCLUDED, " ".join(excluded)), *others]
    return [*others, Answer(EXCLUDED, _not_excluded(analysis))]


def _not_excluded(analysis: Analysis) -> str:
    """Why nothing is excluded of what the dissertation's stacks add to a step."""
    if doubt := doubt_of(analysis.figures):
        return doubt.strip()
    if not any(each.published_step_s is not None for each in analysis.comparisons):
        return "Nothing of the dissertation's: no pairs of runs here are like its own."
    return "None of what the dissertation's stacks add to a step."


def _in_all(cells: Sequence[Cell], baseline: str) -> str:
    """The whole run, stack by stack, over all cells."""
    stacks: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.overhead_total is not None:
            stacks.setdefault(cell.stack, []).append(cell)
    if not stacks:
        return f"No whole runs can be paired with {baseline}'s."
    found = listed([_whole(each) for each in stacks.values()])
    return f"Whole runs, from submission to results, over {baseline}'s: {found}."


def _whole(cells: Sequence[Cell]) -> str:
    ratios = [cell.overhead_total for cell in cells if cell.overhead_total is not None]
    known = [ratio for ratio in ratios if ratio.low is not None]
    means = [ratio.ratio for ratio in known or ratios]
    mean = interval(min(means), max(means), RATIO) if len(means) > 1 else number(means[0], RATIO)
    if not known:
        return f"{cells[0].stack} {mean} times as long, without an interval"
    low, high = envelope(known)
    without = len(ratios) - len(known)
    aside = f"; {without} more without an interval" if without else ""
    return f"{cells[0].stack} {mean} times as long ({interval(low, high, RATIO)}{aside})"


def _where(found: Sequence[Added], baseline: str) -> str:
    """The largest part that each stack certainly adds, with as many workers."""
    largest: dict[str, tuple[float, str]] = {}
    cells = [cell for each in found for cell in (each.baseline, *each.cells)]
    for each in found:
        for part in (part for part in each.parts if not part.is_sum):
            for cell in each.cells:
                more = part.added.get(cell.stack)
                if more is not None and certain(more) and more.mean > largest.get(cell.stack, (0.0, ""))[0]:
                    text = f"{part.name}, {number(more.mean, MORE)} s ({cells_name([cell], cells)})"
                    largest[cell.stack] = (more.mean, text)
    if not found:
        return f"No runs can be paired with {baseline}'s part by part."
    if not largest:
        return "No part of a run is certainly longer on another stack."
    return f"The most that a stack certainly adds: {listed([text for _, text in largest.values()])}."
