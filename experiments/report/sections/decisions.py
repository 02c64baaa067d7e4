"""The dissertation's section 5.6.4 as a table: which stack in which situation, by this campaign's figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from experiments.analysis.comparisons import Compared, Parts
from experiments.analysis.figures import Cell, Figures, setting_text
from experiments.analysis.statistics import Ratio, estimate
from experiments.analysis.verdicts import outcome
from experiments.cluster.stack_facts import OFFERS, Feature
from experiments.report.sections.conclusions import weights_differ
from experiments.report.sections.from_texts import TITLE as FROM_TEXTS
from experiments.report.sections.from_texts import from_texts
from experiments.report.sections.organisation import (
    NEEDS_TITLE,
    NOT_MEASURED,
    NOT_RECORDED,
    OFFERS_TITLE,
    whole_effort,
)
from experiments.report.tables import Column, Table
from experiments.util.words import counted

FILE: Final = Path(__file__).with_name("situations.yml")
TITLE: Final = "Which stack in which situation"
LEVELS: Final = ("none", "by hand", "built in")
NO_DIFFERENCE: Final = "no difference"
CANT_TELL: Final = "can't tell"
OF_EQUAL_WORK: Final = ("speed", "step", "pipeline")  # times that say something only where the work is equal
Range = tuple[float, float]


class Situation(BaseModel):
    """One situation, the dissertation's choice, and what decides."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    situation: str
    dissertation: list[str]
    decides: Literal[
        "speed", "waiting", "step", "weights", "installing", "pipeline",
        "scheduling", "users", "tracking", "checkpoints", "faults", "search", "monitoring",
    ]  # fmt: skip


class Answer(BaseModel):
    """What there is to say: by stack, and which one it speaks for."""

    by: str  # the section of the report that the entries are from
    entries: dict[str, str]
    so: str


@cache
def situations() -> list[Situation]:
    """The situations of section 5.6.4."""
    return TypeAdapter(list[Situation]).validate_python(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def decision_table(figures: Figures, compared: list[Compared], parts: list[Parts]) -> Table:
    """Every situation with what this campaign's figures, and the stacks' facts, say of each stack."""
    stacks = list(dict.fromkeys(run.specification.stack for run in figures.campaign.plan))
    answers = {each.decides: _answer(each.decides, stacks, figures, compared, parts) for each in situations()}
    return Table(
        title=TITLE,
        before=(
            "The situations of the dissertation's section 5.6.4 with its choices, and what this report says "
            "of each. An entry repeats a figure or a fact of the section that is named; times speak for a "
            "stack only where corrected comparisons, or intervals that do not meet, tell it from others."
        ),
        columns=[
            Column("situation"),
            Column("the dissertation"),
            Column("decided by"),
            *(Column(name) for name in stacks),
            Column("speaks for"),
        ],
        rows=[
            [
                each.situation,
                ", ".join(each.dissertation),
                answers[each.decides].by,
                *(answers[each.decides].entries.get(name, NOT_MEASURED) for name in stacks),
                answers[each.decides].so,
            ]
            for each in situations()
        ],
        after=[
            "Built in and by hand are claims of the stacks' roles; what shows them stands in their own table."
        ],
    )


def _answer(
    decides: str, stacks: Sequence[str], figures: Figures, compared: list[Compared], parts: list[Parts]
) -> Answer:
    if decides in OFFERS:
        return _feature(decides, stacks, figures)
    makers: dict[str, Callable[[], Answer]] = {
        "speed": lambda: _speed(figures, compared),
        "waiting": lambda: _waiting(stacks, figures),
        "step": lambda: _step(stacks, parts),
        "weights": lambda: _weights(stacks, figures),
        "installing": lambda: _installing(stacks, figures),
        "pipeline": lambda: _pipeline(figures),
    }
    answer = makers[decides]()
    if decides in OF_EQUAL_WORK and answer.so != NOT_MEASURED and weights_differ(figures):
        return answer.model_copy(update={"so": f"{CANT_TELL}: equal work differed"})
    return answer


def _speed(figures: Figures, compared: list[Compared]) -> Answer:
    """train_s over the baseline's, as far as the corrected comparisons go."""
    baseline = figures.campaign.baseline
    entries = {baseline: "what the others are held against"} if compared else {}
    ways: dict[str, set[str]] = {}
    for each in compared:
        stack = each.cell.stack
        text = f"{_place(each.cell)}: {each.ratio.ratio:.2f}"
        if each.ratio.low is not None and each.ratio.high is not None:
            text += f" ({each.ratio.low:.2f} to {each.ratio.high:.2f})"
        entries[stack] = "; ".join(filter(None, (entries.get(stack), text)))
        ways.setdefault(stack, set()).add(_way(each.ratio, each.corrected_p))
    return Answer(
        by=f"train_s over {baseline}'s: Against {baseline}", entries=entries, so=_fastest(baseline, ways)
    )


def _pipeline(figures: Figures) -> Answer:
    """Seconds from texts to a trained model, where the matrix has runs that begin with texts."""
    found = from_texts(figures)
    if not found:
        return Answer(by="a matrix whose runs begin with texts, as etl's do", entries={}, so=NOT_MEASURED)
    baseline, entries, ways = figures.campaign.baseline, dict[str, str](), dict[str, set[str]]()
    for each in found:
        stack, ratio = each.cell.stack, each.ratio
        text = f"{_place(each.cell)}: {each.end_to_end_s.mean:.1f} s"
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            text += f" ({ratio.low:.2f} to {ratio.high:.2f} times {baseline}'s)"
        entries[stack] = "; ".join(filter(None, (entries.get(stack), text)))
        if ratio is not None:
            ways.setdefault(stack, set()).add(_way(ratio, each.corrected_p))
    return Answer(by=f"end to end: {FROM_TEXTS}", entries=entries, so=_fastest(baseline, ways))


def _way(ratio: Ratio, corrected_p: float | None) -> str:
    shown = outcome(ratio, corrected_p)
    return shown if shown in ("longer", "shorter") else "open"


def _fastest(baseline: str, ways: dict[str, set[str]]) -> str:
    if not ways:
        return NOT_MEASURED
    faster = [stack for stack, seen in ways.items() if seen == {"shorter"}]
    if faster:
        return f"{', '.join(faster)} rather than {baseline}"
    if all(seen == {"longer"} for seen in ways.values()):
        return baseline
    slower = [stack for stack, seen in ways.items() if seen == {"longer"}]
    return f"{CANT_TELL}" + (f", but not for {', '.join(slower)}" if slower else "")


def _waiting(stacks: Sequence[str], figures: Figures) -> Answer:
    """What a run takes besides training, cell by cell."""
    entries: dict[str, str] = {}
    ranges: dict[str, dict[str, Range | None]] = {}
    for cell in figures.cells:
        found = estimate(
            [each.total_s - each.train_s for each in cell.records if each.total_s and each.train_s]
        )
        if found is None:
            continue
        place = _place(cell)
        certain = found.low is not None and found.high is not None
        text = f"{place}: {found.mean:.1f} s" + (f" ({found.low:.1f} to {found.high:.1f})" if certain else "")
        entries[cell.stack] = "; ".join(filter(None, (entries.get(cell.stack), text)))
        ranges.setdefault(place, {})[cell.stack] = (
            None if found.low is None or found.high is None else (found.low, found.high)
        )
    return Answer(
        by="total_s less train_s: Times, accuracy, weights", entries=entries, so=_lowest(stacks, ranges)
    )


def _step(stacks: Sequence[str], parts: list[Parts]) -> Answer:
    """Seconds per step, where there are runs of two lengths."""
    entries: dict[str, str] = {}
    ranges: dict[str, dict[str, Range | None]] = {}
    for each in parts:
        place = ", ".join(filter(None, (counted(each.workers, "worker"), each.setting)))
        half = each.here.step_half
        text = f"{place}: {each.here.step_s * 1000:.2f} ms" + (
            f" ± {half * 1000:.2f}" if half is not None else ""
        )
        entries[each.stack] = "; ".join(filter(None, (entries.get(each.stack), text)))
        ranges.setdefault(place, {})[each.stack] = (
            None if half is None else (each.here.step_s - half, each.here.step_s + half)
        )
    return Answer(by="time per step: Fixed and per step", entries=entries, so=_lowest(stacks, ranges))


def _lowest(stacks: Sequence[str], places: dict[str, dict[str, Range | None]]) -> str:
    """The stack whose interval is below those of all others in every place where there are several."""
    several = [found for found in places.values() if len(found) > 1]
    if not several:
        return NOT_MEASURED
    for stack in stacks:
        if all(_is_below(stack, found) for found in several):
            return stack
    return CANT_TELL


def _is_below(stack: str, found: dict[str, Range | None]) -> bool:
    own = found.get(stack)
    others = [each for name, each in found.items() if name != stack]
    return own is not None and all(each is not None and own[1] < each[0] for each in others)


def _weights(stacks: Sequence[str], figures: Figures) -> Answer:
    """Whether the same training code ended with the same weights."""
    entries = {}
    for stack in stacks:
        works = [each for each in figures.compared if stack in each.digests]
        if works:
            entries[stack] = f"equal weights in {sum(each.equal for each in works)} of {len(works)} works"
    if not figures.compared:
        so = NOT_MEASURED
    else:
        so = NO_DIFFERENCE if all(each.equal for each in figures.compared) else "none: equal work differed"
    return Answer(
        by="the same training code, to the last bit: Times, accuracy, weights", entries=entries, so=so
    )


def _installing(stacks: Sequence[str], figures: Figures) -> Answer:
    """Tasks of provisioning, those of the roles that a stack stands on included."""
    efforts = {name: whole_effort(figures, name) for name in stacks}
    known = {name: effort.tasks for name, effort in efforts.items() if effort is not None}
    entries = {name: f"{known[name]} tasks" if name in known else NOT_RECORDED for name in stacks}
    least = [name for name, number in known.items() if number == min(known.values())]
    complete = len(known) == len(stacks) > 1
    so = (NO_DIFFERENCE if len(least) == len(stacks) else ", ".join(least)) if complete else NOT_RECORDED
    return Answer(by=f"tasks in provisioning: {NEEDS_TITLE}", entries=entries, so=so)


def _feature(name: str, stacks: Sequence[str], figures: Figures) -> Answer:
    """One row of what the stacks offer: it speaks for those that have most, if a test shows it."""
    kept = figures.about.stacks.stacks if figures.about.stacks else {}
    features: dict[str, Feature] = {}
    for stack in stacks:
        facts = kept[stack].facts if stack in kept else None
        if facts is not None:
            features[stack] = getattr(facts.offers, name)
    entries = {
        stack: f"{features[stack].level}, {_grade(features[stack])}" if stack in features else NOT_RECORDED
        for stack in stacks
    }
    so = _most(features) if len(features) == len(stacks) > 1 else NOT_RECORDED
    return Answer(by=f"{OFFERS[name].lower()}: {OFFERS_TITLE}", entries=entries, so=so)


def _grade(claim: Feature) -> str:
    if not claim.shown:
        return "not shown"
    return f"shown against {claim.against}" if claim.against else "shown"


def _most(features: dict[str, Feature]) -> str:
    highest = max(LEVELS.index(each.level) for each in features.values())
    best = [stack for stack, each in features.items() if LEVELS.index(each.level) == highest]
    if len(best) == len(features):
        return NO_DIFFERENCE
    unsure = [stack for stack in best if not features[stack].shown or features[stack].against]
    return ", ".join(f"{stack} (by what is claimed)" if stack in unsure else stack for stack in best)


def _place(cell: Cell) -> str:
    place = [counted(cell.workers, "worker"), counted(cell.axes["epochs"], "epoch"), setting_text(cell.axes)]
    return ", ".join(filter(None, place))
