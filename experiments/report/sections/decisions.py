"""The dissertation's section 5.6.4 as a table: which stack in which situation, by this campaign's figures."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import yaml
from pydantic import TypeAdapter

from experiments.analysis.analysis import Analysis
from experiments.analysis.decisions import MORE_TASKS, Criterion, Favoured
from experiments.cluster.stack_facts import OFFERS
from experiments.report.formats import Value, number
from experiments.report.sections import from_texts, phases, stack_comparisons, time_splits, times
from experiments.report.sections.organisation import NEEDS_TITLE, OFFERS_TITLE, USING_TITLE
from experiments.report.tables import Column, Table
from experiments.util.models import FrozenModel

TITLE: Final = "Which stack in which situation"
FILE: Final = Path(__file__).with_name("situations.yml")


class Situation(FrozenModel):
    """One situation, the dissertation's choice, and what decides."""

    situation: str
    dissertation: list[str]
    decides: Criterion


@cache
def situations() -> list[Situation]:
    """The situations of section 5.6.4."""
    return TypeAdapter(list[Situation]).validate_python(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def decisions_table(analysis: Analysis) -> Table:
    """Every situation with what decides it, where the report shows that, and the stack that it favours."""
    baseline = analysis.figures.campaign.baseline
    names = ("situation", "the dissertation", "decided by", "see", "favours")
    return Table(
        title=TITLE,
        before=(
            "The situations of the dissertation's section 5.6.4 with its choices, and what this report says "
            f"about each. Times favour a stack only where comparisons with {baseline} distinguish it, by "
            "intervals that hold all at once, and beyond the noise."
        ),
        columns=[Column(name) for name in names],
        rows=[
            [
                each.situation,
                ", ".join(each.dissertation),
                *_criterion(each.decides, baseline),
                favoured_text(analysis.favoured[each.decides]),
            ]
            for each in situations()
        ],
        after=[
            "Claimed only: no test of this project shows it on the stack itself; see What each stack offers.",
            f"Tasks favour a stack only over those that took at least {number(MORE_TASKS)} times as many: "
            "how work is cut into tasks is this project's choice.",
        ],
    )


def _criterion(criterion: Criterion, baseline: str) -> tuple[str, Value]:
    """What decides, and the section that shows it."""
    if criterion in OFFERS:
        return OFFERS[criterion].lower(), _link(OFFERS_TITLE)
    comparisons = stack_comparisons.comparisons_title(baseline)
    return {
        "speed": (f"train_s over {baseline}'s", _link(comparisons)),
        "waiting": (phases.AROUND, _link(comparisons)),
        "step": ("time per step", _link(time_splits.TITLE)),
        "weights": ("equal weights of equal work", _link(times.TITLE)),
        "installing": ("tasks in provisioning", _link(NEEDS_TITLE)),
        "using": ("commands, places of logs, lines of code", _link(USING_TITLE)),
        "pipeline": ("time from texts to a trained model", _link(from_texts.TITLE)),
    }[criterion]


def _link(title: str) -> Value:
    return Value(title, section=title)


def favoured_text(found: Favoured) -> str:
    """The stacks that a criterion favours, or why it favours none."""
    if found.outcome == "stacks":
        stacks = ", ".join(
            f"{stack} (claimed only)" if stack in found.claimed else stack for stack in found.stacks
        )
        return f"{stacks} rather than {found.over}" if found.over else stacks
    if found.outcome == "open":
        return "can't tell" + (f", but not {', '.join(found.worse)}" if found.worse else "")
    return {
        "no difference": "no difference",
        "unequal work": "can't tell: equal work gave different weights",
        "unproven work": "can't tell: equal work is not proven",
        "not measured": "not measured here",
        "not recorded": "not recorded",
        "not judged": "counted, not judged",
    }[found.outcome]
