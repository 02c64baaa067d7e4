"""What using the stacks takes and what they offer, counted in records and in what a campaign has kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.analysis.dissertation import Dissertation
from experiments.analysis.figures import Figures
from experiments.campaign.stacks import Stack
from experiments.cluster.stack_facts import OFFERS, Facts, Feature
from experiments.records.record import Record


@dataclass(frozen=True)
class Started:
    """How a run was started."""

    run_id: str
    workers: int
    commands: int
    words: int  # of one command


@dataclass(frozen=True)
class Offered:
    """What a stack offers of the dissertation's table 5.11."""

    features: int  # of the table
    built_in: int  # those of them that the stack has by itself
    on_itself: int  # those of the built-in ones that a test or a figure shows on the stack itself


@dataclass(frozen=True)
class Named:
    """What the dissertation's table 5.11 names of a stack one by one and this project has no claim about."""

    not_tried: list[str]
    not_recorded: list[str]  # whether they were tried, in facts that say nothing about that


def largest_run(figures: Figures, stack: str) -> Record | None:
    """A stack's first run with the most workers; None if none counts."""
    runs = [each for each in figures.counting if each.specification.stack == stack]
    return max(runs, key=lambda each: each.specification.work.workers, default=None)


def started(record: Record | None) -> Started | None:
    """How a run was started; None if its record doesn't say."""
    if record is None or record.launch is None:
        return None
    launch = record.launch
    workers = record.specification.work.workers
    return Started(record.run_id, workers, max(1, len(launch.nodes)), len(launch.command))


def offered(facts: Facts) -> Offered:
    """What a stack's role says that it offers."""
    features: list[Feature] = [getattr(facts.offers, name) for name in OFFERS]
    built_in = [each for each in features if each.level == "built in"]
    return Offered(
        features=len(features),
        built_in=len(built_in),
        on_itself=sum(each.shown and each.against is None for each in built_in),
    )


def named(stacks: Mapping[str, Stack], dissertation: Dissertation) -> dict[str, Named]:
    """What table 5.11 names of each stack and has no claim here; only stacks with facts."""
    found = {}
    for name, stack in stacks.items():
        if stack.facts is None:
            continue
        not_tried: list[str] = []
        not_recorded: list[str] = []
        for feature, cells in dissertation.features.items():
            names = cells[name].names if name in cells else []
            tried = getattr(stack.facts.offers, feature).tried
            if tried is None:
                not_recorded += names
            else:
                not_tried += [each for each in names if each not in tried]
        found[name] = Named(not_tried, not_recorded)
    return found
