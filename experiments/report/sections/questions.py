"""The dissertation's research questions: its answers, what this campaign says, where, and what stays open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.analysis.analysis import Analysis
from experiments.analysis.dissertation import Question
from experiments.analysis.organisation import Offered, Started
from experiments.analysis.questions import Beyond, Questions
from experiments.report.formats import RATIO, Format, Value, interval, number
from experiments.report.sections import decisions, dissertation, phases, time_splits, times
from experiments.report.sections.conclusions import times_sentence, weights_sentence, workers_sentence
from experiments.report.sections.organisation import (
    NEEDS_TITLE,
    NOT_RECORDED,
    NOT_TRIED,
    OFFERS_TITLE,
    USING_TITLE,
)
from experiments.report.sections.stack_comparisons import comparisons_title, doubt_of
from experiments.report.sections.users import users_title
from experiments.report.tables import Column, Table
from experiments.util.words import counted, listed

TITLE: Final = "Research questions"
ASKED_IN: Final = "1.3"
NAMES: Final = {"time": "training time", "management": "cluster management", "use": "ease of use"}
NOT_ANSWERED: Final = "Not answered here."
SAME: Final = "The dissertation names the same."
UNDECIDED: Final = "The dissertation's answer is neither confirmed nor refuted."
NOT_JUDGED: Final = "Counted, not judged: which of it is easier is for people to say."
NOBODY_ASKED: Final = "What people find easy: nobody was asked."
SAME_CODE: Final = (
    "How much of a script has to change: the training code is this project's own, the same on every stack. "
    "Matrices of a script count it."
)
NO_REPETITION: Final = "How far apart equal runs are: the first stack was not repeated, or not often enough."
NO_SCALING: Final = "How stacks scale: none ran with one worker and with several."
NO_GPU: Final = "What stacks cost on GPUs, which the dissertation had: no run that counts trained on one."
COUNTED_ONLY: Final = "How well features serve people: it is counted which there are, and nothing more."
NO_COMPANY: Final = "How stacks share a cluster: no two users were measured at once."
OUTSIDE: Final = "Submitting from outside the cluster:"
NOTHING_OPEN: Final = "Nothing, for this work on this cluster."


@dataclass(frozen=True)
class Answer:
    """What a campaign says about a question."""

    here: list[str]  # sentences
    evidence: list[str]  # titles of sections
    remains: list[str]  # sentences on what the campaign lacks


def questions_table(analysis: Analysis) -> Table:
    """The three questions, a few rows each; no row if the campaign can't be set beside the dissertation."""
    found = analysis.questions
    return Table(
        title=TITLE,
        before=(
            f"As the dissertation asks them in section {ASKED_IN}, with its answers in brief. Here: as much "
            "of an answer as this campaign's figures allow. What stays open is what the campaign lacks."
        ),
        columns=[Column("question"), Column("part"), Column("says")],
        rows=[]
        if found is None
        else [row for question in found.asked for row in _rows(question, analysis, found)],
    )


def _rows(question: Question, analysis: Analysis, found: Questions) -> Iterator[list[Value | str]]:
    answers: dict[str, Callable[[Question, Analysis, Questions], Answer]] = {
        "time": _time,
        "management": _management,
        "use": _use,
    }
    answer = answers[question.topic](question, analysis, found)
    parts: list[tuple[str, Value | str]] = [
        (f"question, section {ASKED_IN}", question.question),
        (f"the dissertation, section {question.section}", question.answer),
        *(("here", text) for text in answer.here),
        *(("evidence", Value(title, section=title)) for title in answer.evidence),
        *(("stays open", text) for text in answer.remains or [NOTHING_OPEN]),
    ]
    yield from ([NAMES[question.topic], part, says] for part, says in parts)


def _time(question: Question, analysis: Analysis, found: Questions) -> Answer:
    figures, baseline, lacking = analysis.figures, analysis.figures.campaign.baseline, found.lacking
    doubt = doubt_of(figures)
    here = [f"{NOT_ANSWERED} {doubt.strip()}" if doubt else _fastest(question, analysis)]
    if not doubt:
        here += [_beyond(stack, each, baseline) for stack, each in found.beyond.items()]
        here += [] if lacking.scaling else [workers_sentence(figures, analysis.noise.floor)]
    here.append(weights_sentence(figures))
    shown = {
        times.TITLE: True,
        comparisons_title(baseline): bool(analysis.comparisons),
        time_splits.TITLE: bool(analysis.time_splits),
        dissertation.TITLE: bool(analysis.published),
        phases.TITLE: any(cell.phases for cell in figures.cells),
    }
    remains = [f"The times of {listed(lacking.stacks)}: no run counts here."] if lacking.stacks else []
    if lacking.by_standin:
        remains.append(f"What {listed(lacking.by_standin)} costs: a stand-in made runs of it.")
    remains += [NO_GPU] if lacking.gpus else []
    if lacking.pairs is not None:
        remains.append(
            f"Small differences: no comparison has more than {counted(lacking.pairs, 'pair')} of runs, where "
            f"the dissertation's means have up to {counted(lacking.published_runs, 'run')}."
        )
    remains += [NO_REPETITION] if lacking.repetition else []
    remains += [NO_SCALING] if lacking.scaling else []
    return Answer(here, [title for title, there in shown.items() if there], remains)


def _fastest(question: Question, analysis: Analysis) -> str:
    """Which stack is the fastest, as far as the corrected comparisons tell."""
    said, compared = analysis.favoured["speed"], analysis.comparisons
    sentence = times_sentence(compared, analysis.figures.campaign.baseline)
    if not compared:
        return f"{NOT_ANSWERED} {sentence}"
    if said.outcome != "stacks":
        if set(question.stacks) <= set(said.worse):
            verdict = f"The dissertation's answer does not hold: {listed(question.stacks)} certainly is not."
        else:
            verdict = UNDECIDED
        return f"{NOT_ANSWERED} No stack is certainly the fastest. {verdict} {sentence}"
    if said.over is None:
        verdict = f"{listed(said.stacks)}: all others that are compared take longer."
    else:
        verdict = f"{listed(said.stacks)}: faster than {said.over} in every comparison."
        if len({each.cell.stack for each in compared}) > 1:
            verdict += " The others are compared with it alone, not with one another."
    return f"{verdict} {_beside(said.stacks, question)} {sentence}"


def _beside(stacks: Sequence[str], question: Question) -> str:
    """Whether the dissertation names these stacks."""
    if set(stacks) == set(question.stacks):
        return SAME
    return f"The dissertation names {listed(question.stacks)}."


def _beyond(stack: str, found: Beyond, baseline: str) -> str:
    without = "" if found.has_interval else ", without an interval"
    return (
        f"{stack} trains {_between(found.low, found.high)} times as long as {baseline} here{without}, and "
        f"{_between(found.published_low, found.published_high)} times in the dissertation."
    )


def _between(low: float, high: float, form: Format = RATIO) -> str:
    return number(low, form) if number(low, form) == number(high, form) else interval(low, high, form)


def _management(question: Question, analysis: Analysis, found: Questions) -> Answer:
    lacking, setup = found.lacking, analysis.figures.setup
    installing = analysis.installing.stacks
    checked = [name for name, each in installing.items() if each.only_checked]
    tasks = {
        name: each.whole
        for name, each in installing.items()
        if each.whole is not None and name not in checked
    }
    here = _most(question, analysis, found)
    if tasks:
        took = listed([f"{counted(each.tasks, 'task')} for {name}" for name, each in tasks.items()])
        here.append(f"Provisioning took {took}.")
    shown = {
        OFFERS_TITLE: setup.stacks is not None,
        NEEDS_TITLE: True,
        decisions.TITLE: True,
        users_title(analysis.occasions): bool(analysis.occasions),
    }
    remains = [COUNTED_ONLY]
    remains += [
        f"What {name} offers: nothing is kept about it here."
        for name in analysis.dissertation.stacks
        if name not in found.offered
    ]
    for stack, each in found.offered.items():
        if unshown := each.built_in - each.on_itself:
            remains.append(
                f"{unshown} of the features of {stack} that are built in: no test shows them on it."
            )
    for stack, of_it in found.named.items():
        for names, what in ((of_it.not_tried, NOT_TRIED), (of_it.not_recorded, NOT_RECORDED)):
            remains += [f"{', '.join(names)}, named in table 5.11 for {stack}: {what}."] if names else []
    if checked:
        remains.append(
            f"What installing {listed(checked)} takes: provisioning found it in place, and only checked it."
        )
    remains += [] if tasks or checked else [f"What installing takes: {NOT_RECORDED}."]
    remains += [NO_COMPANY] if lacking.company else []
    return Answer(here, [title for title, there in shown.items() if there], remains)


def _most(question: Question, analysis: Analysis, found: Questions) -> list[str]:
    """How many features each stack has, and which stack has most."""
    stacks = list(dict.fromkeys(run.specification.stack for run in analysis.figures.campaign.measured))
    unknown = [name for name in stacks if name not in found.offered]
    if not found.offered:
        return [f"{NOT_ANSWERED} The campaign has kept nothing about what its stacks offer."]
    count = next(iter(found.offered.values())).features
    numbers = listed([_offered(name, each) for name, each in found.offered.items()])
    counts = f"Built in, of the {number(count)} features of table 5.11: {numbers}."
    most = max(each.built_in for each in found.offered.values())
    best = [name for name, each in found.offered.items() if each.built_in == most]
    if unknown:
        return [counts, f"{NOT_ANSWERED} What {listed(unknown)} offers is not recorded."]
    if len(best) == len(found.offered):
        return [counts, f"{NOT_ANSWERED} None has more of them than another."]
    return [counts, f"Most of them: {listed(best)}. {_beside(best, question)}"]


def _offered(name: str, each: Offered) -> str:
    shown = f" ({number(each.on_itself)} shown on the stack itself)" if each.built_in else ""
    return f"{number(each.built_in)} on {name}{shown}"


def _use(_: Question, analysis: Analysis, found: Questions) -> Answer:
    setup, baseline = analysis.figures.setup, analysis.figures.campaign.baseline
    here = [NOT_JUDGED]
    if found.started:
        starts = listed([_started(name, each) for name, each in found.started.items()])
        here.append(f"To start a run: {starts}.")
    else:
        here.append(f"{NOT_ANSWERED} No run that counts has kept its command.")
    launchers = {
        name: stack.launcher
        for name, stack in (setup.stacks.stacks.items() if setup.stacks is not None else ())
        if stack.launcher is not None
    }
    if launchers:
        lines = listed(
            [
                f"{counted(each.lines, 'line')} on {name}"
                + ("" if name == baseline else f" ({number(each.changed)} of them not in {baseline}'s)")
                for name, each in launchers.items()
            ]
        )
        here.append(f"Code that launches the same training: {lines}.")
    shown = {USING_TITLE: setup.stacks is not None, NEEDS_TITLE: True, decisions.TITLE: True}
    stacks = found.lacking.stacks
    remains = [f"The commands of {listed(stacks)}: no run counts here."] if stacks else []
    remains += [NOBODY_ASKED, SAME_CODE]
    if found.elsewhere_unshown:
        remains.append(f"{OUTSIDE} nothing shows it on {listed(found.elsewhere_unshown)}.")
    if found.elsewhere_unrecorded:
        remains.append(f"{OUTSIDE} {NOT_RECORDED} for {listed(found.elsewhere_unrecorded)}.")
    return Answer(here, [title for title, there in shown.items() if there], remains)


def _started(name: str, each: Started) -> str:
    commands = f"{counted(each.commands, 'command')} of {counted(each.words, 'word')}"
    return f"{commands} on {name} with {counted(each.workers, 'worker')}"
