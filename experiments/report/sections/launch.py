"""What the stacks' launches differ in: the whole list of what a launch can change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.census import LaunchDifferences
from experiments.analysis.placements import Placement
from experiments.report.formats import number, span
from experiments.report.tables import Table, columns
from experiments.util.words import counted, listed

TITLE: Final = "What the launches differ in"
UNNOTED: Final = (
    "Not every rank noted these, as earlier versions did not, and they are not compared: {names}."
)
CHOSEN: Final = {
    "turns": "those of {stack} took turns over the workers, by the plan",
    "plan": "those of {stack} took no turns, by the plan",
    "stack": "those of {stack} went where it put them",
}
CHANGING: Final = "On every stack these change from run to run, and are not compared: {names}."


def launch_table(found: LaunchDifferences, places: Sequence[Placement]) -> Table:
    """Everything that the ranks of the stacks noted otherwise; no rows if there was nothing to compare.

    Below it, a line for each stack says where its ranks ran, one who chose the workers of runs that don't
    take all, and one in how many pairs stacks were on the same nodes.
    """
    rows = [
        [each.group, each.name, *(" or ".join(each.values[side]) for side in found.sides)]
        for each in found.differing
    ] or [["nothing", "", *("the same" for _ in found.sides)]]
    return Table(
        title=TITLE,
        before="Before ranks meet, each notes what it was given and what it runs on. Compared are those at "
        "the same place of equally large runs under equal conditions. The same on all stacks: "
        f"{counted(found.same, 'thing')}. Not the same are those below: what a launch does to the time of "
        "training is among them, as far as it is noted; what a stack does while its ranks train is not.",
        columns=columns("what", "name", *found.sides, words=("what", "name", *found.sides)),
        rows=rows if found.compared else [],
        after=[
            *([CHANGING.format(names=listed(found.changing))] if found.changing else []),
            *([UNNOTED.format(names=listed(found.unnoted))] if found.unnoted else []),
            *(_place_text(each) for each in places),
            *_submitted_texts(places),
            *_chosen_texts(places),
            *_pairs_texts(places),
        ],
    )


def _place_text(place: Placement) -> str:
    """`…, 5 runs: ranks on worker1 and worker2, never on the master; no two of a run on one node.`"""
    if place.runs_on_master == 0:
        master = "never on the master"
    elif place.runs_on_master == place.runs:
        master = "in every run also on the master, beside the stacks' services"
    else:
        master = (
            f"in {number(place.runs_on_master)} of these runs also on the master, beside the stacks' services"
        )
    each = f"{span((place.fewest, place.most))} of a run on each of its nodes"
    shared = each if place.most > 1 else "no two of a run on one node"
    return f"{place.stack}, {counted(place.runs, 'run')}: ranks on {listed(place.nodes)}, {master}; {shared}."


def _submitted_texts(places: Sequence[Placement]) -> list[str]:
    """Where the stacks' commands ran (drivers, clients, launchers), as one sentence; none if not known."""
    parts = [
        f"{place.stack}'s on {listed(place.submitted_on)}, beside ranks of the same run in "
        f"{number(place.beside_ranks)} of {counted(place.runs, 'run')}"
        for place in places
        if place.submitted_on
    ]
    return [f"The commands that started them ran: {'; '.join(parts)}."] if parts else []


def _chosen_texts(places: Sequence[Placement]) -> list[str]:
    """Who chose the workers of runs on fewer than all, as one sentence; none if that is not known."""
    parts = [
        CHOSEN[place.by].format(stack=place.stack)
        + f" ({listed([f'{name} in {number(runs)}' for name, runs in place.smaller.items()])})"
        for place in places
        if place.by is not None
    ]
    return [f"Of the runs on fewer than all workers, {'; '.join(parts)}."] if parts else []


def _pairs_texts(places: Sequence[Placement]) -> list[str]:
    """In how many pairs stacks had their ranks on the baseline's nodes, as one sentence; none without any."""
    parts = [
        f"those of {place.stack} in {number(place.same_nodes)} of {counted(place.pairs, 'pair')}, and rank 0 "
        f"in {number(place.same_rank_0)}"
        for place in places
        if place.pairs
    ]
    return [f"Ranks on the same nodes as {places[0].baseline}'s: {'; '.join(parts)}."] if parts else []
