"""Runs that begin at once: users of one cluster, as a matrix asks for them, or side by side to save time.

Users are runs that differ only in their seed; which seeds, the matrix says (`together`). They count only as a
whole: where one of them is not ok, all are made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record, Together

WAITS_S: Final = 24 * 3600  # a user waits for another one's whole run, however long it is


@dataclass(frozen=True)
class Group:
    """Runs that begin at the same moment; mostly one, which is alone."""

    runs: list[PlannedRun]
    why: Literal["side by side", "users"] | None = None  # None: it is alone

    @property
    def name(self) -> str:
        """The ids of its runs."""
        return " and ".join(run.run_id for run in self.runs)

    def together(self, place: int, begun: datetime) -> Together | None:
        """What a record says of it."""
        if self.why is None:
            return None
        ids = [run.run_id for run in self.runs]
        return Together(why=self.why, runs=ids, place=place, begun=begun)

    def variables(self, place: int) -> dict[str, bool | int]:
        """What run.yml is told of it."""
        if self.why is None:
            return {}
        told: dict[str, bool | int] = {"run_beside": True, "run_place": place}
        # Users choose their nodes without a word to one another, and wait for as long as it takes.
        return told | ({"run_waits_s": WAITS_S} if self.why == "users" else {"run_first_worker": place})


def groups_of(order: Iterable[PlannedRun], workers: int, *, side_by_side: bool) -> list[Group]:
    """What is to do as groups of runs that begin at once, in the order of their first runs.

    Args:
        order: the runs, in theirs.
        workers: of the cluster.
        side_by_side: runs of one worker, of the same block and stack, begin at once, as many as there are
            workers: never of two stacks, whose schedulers know nothing of one another, and never warm-ups.
    """
    found: list[tuple[tuple[object, ...], int, list[PlannedRun]]] = []
    for run in order:
        key, room = _company(run, workers, side_by_side)
        runs = next((runs for other, _, runs in reversed(found) if other == key and len(runs) < room), None)
        if runs is None:
            found.append((key, room, [run]))
        else:
            runs.append(run)
    return [
        Group(runs, ("users" if runs[0].together else "side by side") if len(runs) > 1 else None)
        for _, _, runs in found
    ]


def _company(run: PlannedRun, workers: int, side_by_side: bool) -> tuple[tuple[object, ...], int]:
    """What a run has in common with those that it may begin with, and how many they may be."""
    if run.together:
        return tuple(run.together), len(run.together)
    if side_by_side and not run.warm_up and run.specification.work.workers == 1:
        return (run.block, run.specification.stack), workers
    return (run.run_id,), 1


def first_that_counts(groups: Sequence[Group]) -> Sequence[Group]:
    """The groups up to the first one that counts: a warm-up is in vain without it."""
    at = next((at for at, group in enumerate(groups) if not group.runs[0].warm_up), len(groups) - 1)
    return groups[: at + 1]


def why_not_side_by_side(groups: Sequence[Group], workers: int) -> str | None:
    """Why nothing runs side by side though it was asked for, in a sentence; None where something does."""
    if any(group.why == "side by side" for group in groups):
        return None
    if workers == 1:
        return "Nothing runs side by side: the cluster has one worker."
    return "Nothing runs side by side: in no block two runs of one worker on the same stack are to be made."


def whole_groups(plan: Sequence[PlannedRun], runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """`runs` and those with which they begin, in the order of the plan."""
    ids = {run_id for run in runs for run_id in (run.run_id, *run.together)}
    return [run for run in plan if run.run_id in ids]


def same_occasion(records: Sequence[Record | None]) -> bool:
    """Whether these are records of runs that began at the same moment, and all are there."""
    return same_moment([record.together if record else None for record in records])


def same_moment(notes: Sequence[Together | None]) -> bool:
    """Whether all of these, of one attempt each, tell of the same beginning."""
    moments = {note.begun if note else None for note in notes}
    return len(moments) == 1 and None not in moments
