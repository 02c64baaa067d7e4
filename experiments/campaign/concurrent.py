"""Runs that start at the same moment: as users of one cluster, or side by side to save time.

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

WAITS_S: Final = 24 * 3600  # a user may have to wait for another's whole run, however long


@dataclass(frozen=True)
class Group:
    """Runs that start at the same moment; usually only one."""

    runs: list[PlannedRun]
    why: Literal["side by side", "users"] | None = None  # None: a single run

    @property
    def name(self) -> str:
        """The ids of its runs."""
        return " and ".join(run.run_id for run in self.runs)

    def start(self, place: int, begun: datetime) -> ConcurrentStart | None:
        """What the record of run number `place` says about the group."""
        if self.why is None:
            return None
        ids = [run.run_id for run in self.runs]
        return ConcurrentStart(why=self.why, runs=ids, place=place, begun=begun)

    def variables(self, place: int) -> dict[str, bool | int]:
        """The variables that run.yml gets for run number `place`."""
        if self.why is None:
            return {}
        variables: dict[str, bool | int] = {"run_concurrently": True, "run_place": place}
        # Users choose their nodes independently, and wait as long as it takes.
        return variables | ({"run_waits_s": WAITS_S} if self.why == "users" else {"run_first_worker": place})


def groups_of(order: Iterable[PlannedRun], workers: int, *, side_by_side: bool) -> list[Group]:
    """The runs as groups that start at the same moment, in the order of their first runs.

    Args:
        order: the runs, in their order.
        workers: of the cluster.
        side_by_side: runs of one worker, of the same block and stack, start together, as many as there are
            workers. Never two stacks, because their schedulers don't know of one another; never warm-ups.
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
    """What runs that may start together have in common, and how many of them may."""
    if run.together:
        return tuple(run.together), len(run.together)
    if side_by_side and not run.warm_up and run.specification.work.workers == 1:
        return (run.block, run.specification.stack), workers
    return (run.run_id,), 1


def through_first_measured(groups: Sequence[Group]) -> Sequence[Group]:
    """The groups through the first measured one: a warm-up without it is useless."""
    at = next((at for at, group in enumerate(groups) if not group.runs[0].warm_up), len(groups) - 1)
    return groups[: at + 1]


def why_not_side_by_side(groups: Sequence[Group], workers: int) -> str | None:
    """Why nothing runs side by side although requested, in one sentence; None if something does."""
    if any(group.why == "side by side" for group in groups):
        return None
    if workers == 1:
        return "Nothing runs side by side: the cluster has one worker."
    return "Nothing runs side by side: no block has two single-worker runs of one stack left."


def whole_groups(plan: Sequence[PlannedRun], runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """`runs` and those that start with them, in the order of the plan."""
    ids = {run_id for run in runs for run_id in (run.run_id, *run.together)}
    return [run for run in plan if run.run_id in ids]


def same_occasion(records: Sequence[Record | None]) -> bool:
    """Whether all these records exist, and their runs started at the same moment."""
    return same_moment([record.together if record else None for record in records])


def same_moment(notes: Sequence[ConcurrentStart | None]) -> bool:
    """Whether all these notes, one from each attempt, are of the same start."""
    moments = {note.begun if note else None for note in notes}
    return len(moments) == 1 and None not in moments
