"""Runs that start at the same moment: as users of one cluster, or side by side to save time.

Users are runs that differ only in their seed; the matrix says which seeds (`together`). They count only as a
whole: if one of them is not ok, all are run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

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

    def variables(self, place: int) -> dict[str, Any]:
        """The variables that run.yml gets for run number `place`."""
        nodes = self.runs[place].nodes
        given = {"run_nodes": nodes} if nodes else {}
        if self.why is None:
            return given
        # Users don't know of one another, and wait as long as it takes.
        waits = {"run_waits_s": WAITS_S} if self.why == "users" else {}
        return {"run_concurrently": True, "run_place": place, **waits, **given}


def groups_of(
    order: Iterable[PlannedRun],
    plan: Iterable[PlannedRun],
    workers: Sequence[str],
    *,
    side_by_side: bool,
) -> list[Group]:
    """The runs as groups that start at the same moment, in the order of their first runs.

    Args:
        order: the runs, in their order.
        plan: all of the campaign's runs; with `workers`, it alone decides where runs go.
        workers: of the cluster.
        side_by_side: runs of one worker, of the same block and stack, start together, each on a worker of
            its own. Never two stacks, because their schedulers don't know of one another; never warm-ups.
    """
    shifts = shifts_side_by_side(plan) if side_by_side else {}
    found: list[tuple[tuple[object, ...], dict[str, PlannedRun]]] = []
    for each in order:
        run, place = each, each.run_id
        key: tuple[object, ...] = tuple(run.together) or (run.run_id,)
        if run.run_id in shifts:
            shift = shifts[run.run_id]
            key, place = (run.block, run.specification.stack), str(shift % len(workers))
            run = run.model_copy(update={"nodes": shifted(run, workers, shift)})
        runs = next((runs for other, runs in reversed(found) if other == key and place not in runs), None)
        if runs is None:
            found.append((key, {place: run}))
        else:
            runs[place] = run
    return [
        Group(runs, ("users" if runs[0].together else "side by side") if len(runs) > 1 else None)
        for runs in (list(by_place.values()) for _, by_place in found)
    ]


def shifts_side_by_side(plan: Iterable[PlannedRun]) -> dict[str, int]:
    """By how many workers each run is shifted that may be side by side with others, by its id.

    Runs of a block that differ only in their stack have the same shift, so they are on the same worker. Those
    whose rank 0 has a place of its own stay alone.
    """
    known: dict[int, list[tuple[tuple[str, str], ...]]] = {}  # by block
    shifts = {}
    for run in sorted(plan, key=lambda run: run.written):
        one = run.specification.work.workers == 1 and run.specification.conditions.rank_0 == "any"
        if not one or run.warm_up or run.together:
            continue
        cells = known.setdefault(run.block, [])
        cell = tuple(item for item in run.cell if item[0] != "stack")
        if cell not in cells:
            cells.append(cell)
        shifts[run.run_id] = cells.index(cell)
    return shifts


def shifted(run: PlannedRun, workers: Sequence[str], shift: int) -> list[str]:
    """The workers that the plan gives a run, each so many further on; empty if its stack chooses."""
    return [workers[(workers.index(name) + shift) % len(workers)] for name in run.nodes or []]


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
