"""Runs that start at the same moment: users of one cluster, or side by side to save time.

Users are runs that differ only in their seed; the matrix says which seeds (`together`). They count only as a
whole: if one of them is not ok, all are run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from experiments.campaign.plan import PlannedRun
from experiments.records.record import ConcurrentStart, Record

WAITS_S: Final = 24 * 3600  # a user waits for another one's whole run, however long it is


@dataclass(frozen=True)
class Group:
    """Runs that start at the same moment; mostly one, alone."""

    runs: list[PlannedRun]
    why: Literal["side by side", "users"] | None = None  # None: it is alone

    @property
    def name(self) -> str:
        """The ids of its runs."""
        return " and ".join(run.run_id for run in self.runs)

    def start(self, place: int, begun: datetime) -> ConcurrentStart | None:
        """What the record of its run number `place` says of it."""
        if self.why is None:
            return None
        ids = [run.run_id for run in self.runs]
        return ConcurrentStart(why=self.why, runs=ids, place=place, begun=begun)

    def variables(self, place: int) -> dict[str, bool | int]:
        """What run.yml is told of its run number `place`."""
        if self.why is None:
            return {}
        variables: dict[str, bool | int] = {"run_beside": True, "run_place": place}
        # Users choose their nodes without a word to one another, and wait for as long as it takes.
        return variables | ({"run_waits_s": WAITS_S} if self.why == "users" else {"run_first_worker": place})


def groups_of(order: Iterable[PlannedRun], workers: int, *, side_by_side: bool) -> list[Group]:
    """The runs as groups that start at the same moment, in the order of their first runs.

    Args:
        order: the runs, in their order.
        workers: of the cluster.
        side_by_side: runs of one worker, of the same block and stack, start together, as many as there are
            workers. Never two stacks, whose schedulers know nothing of one another; never warm-ups.
    """
    found: list[tuple[tuple[object, ...], int, list[PlannedRun]]] = []
    for run in order:
        key, room = _group_key(run, workers, side_by_side)
        runs = next((runs for other, _, runs in reversed(found) if other == key and len(runs) < room), None)
        if runs is None:
            found.append((key, room, [run]))
        else:
            runs.append(run)
    return [
        Group(runs, ("users" if runs[0].together else "side by side") if len(runs) > 1 else None)
        for _, _, runs in found
    ]


def _group_key(run: PlannedRun, workers: int, side_by_side: bool) -> tuple[tuple[object, ...], int]:
    """What a run has in common with those it may start with, and how many these may be."""
    if run.together:
        return tuple(run.together), len(run.together)
    if side_by_side and not run.warm_up and run.specification.work.workers == 1:
        return (run.block, run.specification.stack), workers
    return (run.run_id,), 1


def through_first_measured(groups: Sequence[Group]) -> Sequence[Group]:
    """The groups up to the first that is measured: without it, a warm-up is useless."""
    at = next((at for at, group in enumerate(groups) if not group.runs[0].warm_up), len(groups) - 1)
    return groups[: at + 1]


def why_not_side_by_side(groups: Sequence[Group], workers: int) -> str | None:
    """Why nothing runs side by side though it was asked for, in a sentence; None if something does."""
    if any(group.why == "side by side" for group in groups):
        return None
    if workers == 1:
        return "Nothing runs side by side: the cluster has one worker."
    return "Nothing runs side by side: no block has two runs of one worker on the same stack left."


def whole_groups(plan: Sequence[PlannedRun], runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """`runs` and those that start with them, in the order of the plan."""
    ids = {run_id for run in runs for run_id in (run.run_id, *run.together)}
    return [run for run in plan if run.run_id in ids]


def same_occasion(records: Sequence[Record | None]) -> bool:
    """Whether all these records are there, and their runs started at the same moment."""
    return same_moment([record.together if record else None for record in records])


def same_moment(notes: Sequence[ConcurrentStart | None]) -> bool:
    """Whether all of these, of one attempt each, tell of the same start."""
    moments = {note.begun if note else None for note in notes}
    return len(moments) == 1 and None not in moments
