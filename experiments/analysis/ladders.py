"""Where an overhead comes from: the rungs of a matrix's ladders, each compared with the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any, Final, Literal

from experiments.analysis.figures import Figures
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import (
    Difference,
    Estimate,
    differences_together,
    estimate,
    mean_difference,
)
from experiments.analysis.verdicts import sign
from experiments.campaign.plan import PlannedRun
from experiments.matrix.ladders import Ladder, Rung
from experiments.records.record import Record

IN_TRAINING: Final = ("data", "forward", "backward", "exposed_sync", "optimiser", "evaluation", "checkpoint")
"""The named phases within train_s; the rest of it is `other`."""
MOST: Final = 2  # phases shown for each step

StepOutcome = Literal["costs", "saves", "open", "none"]
"""`open`: no difference is shown; `none`: there is no interval to judge by."""


@dataclass(frozen=True)
class Step:
    """From one rung to another: how much longer the upper one's train_s is."""

    above: str  # labels
    below: str
    seconds: Difference  # by pairs of the same seed
    percent: Difference | None  # of the last rung's train_s, by seed; None if that has none of these seeds
    phases: list[tuple[str, float]]  # those that changed most, mean seconds

    @property
    def outcome(self) -> StepOutcome:
        """What the change shows, by an interval that holds with those of all steps of the report."""
        shown = sign(self.seconds)
        if shown is None:
            return "none"
        return "open" if shown == 0 else "costs" if shown > 0 else "saves"

    @property
    def certain(self) -> bool:
        """Whether a difference may be claimed."""
        return self.outcome in ("costs", "saves")


@dataclass(frozen=True)
class SkippedRung:
    """A rung that is not shown."""

    label: str
    reason: Literal[
        "no such run", "impossible", "not yet", "disturbed", "stand-in", "same run", "no common seed"
    ]
    detail: str = ""  # why the runs are impossible or not timed, or the label of the rung with the same runs


@dataclass(frozen=True)
class Waterfall:
    """One ladder for runs that are otherwise alike."""

    ladder: str
    axes: dict[str, Any]  # what its runs have in common
    rungs: list[tuple[str, Estimate]]  # label and train_s of those that were measured
    steps: list[Step]
    whole: Step | None  # from the first to the last, where there are several steps
    skipped: list[SkippedRung]
    complete: bool  # whether the ladder's own first and last rungs are the first and last that were measured

    @property
    def every_step(self) -> list[Step]:
        """The steps, and then the whole."""
        return [*self.steps, *([self.whole] if self.whole else [])]


def waterfalls(figures: Figures, floor: float | None = None) -> list[Waterfall]:
    """Every ladder of the matrix, once for each set of axes that its rungs leave open.

    `floor` is the noise floor, as a fraction of train_s; of a ladder's seconds it is that of the last rung's.
    """
    counting = {record.run_id: record for record in figures.counting if not record.among_users}
    found = [
        waterfall
        for ladder in figures.campaign.ladders
        for waterfall in _of_ladder(ladder, figures.campaign.measured, counting)
    ]
    steps = [step for each in found for step in each.every_step]
    looks = figures.campaign.looks
    seconds = differences_together([step.seconds for step in steps], looks)
    # A share says the same as its seconds, and is no comparison of its own.
    percent = iter(differences_together([step.percent for step in steps if step.percent], looks))
    by_step = {
        id(step): replace(step, seconds=each, percent=next(percent) if step.percent else None)
        for step, each in zip(steps, seconds, strict=True)
    }
    return [
        replace(
            each,
            steps=[_above_noise(by_step[id(step)], each, floor) for step in each.steps],
            whole=_above_noise(by_step[id(each.whole)], each, floor) if each.whole else None,
        )
        for each in found
    ]


def _above_noise(step: Step, waterfall: Waterfall, floor: float | None) -> Step:
    """The step, with the noise floor in seconds."""
    if floor is None:
        return step
    return replace(step, seconds=replace(step.seconds, floor=floor * waterfall.rungs[-1][1].mean))


def _of_ladder(
    ladder: Ladder, plan: Sequence[PlannedRun], counting: dict[str, Record]
) -> Iterable[Waterfall]:
    groups: dict[tuple[tuple[str, str], ...], dict[int, list[PlannedRun]]] = {}
    axes_of: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for run in plan:
        for axes in (run.axes, *run.also):
            for number, rung in enumerate(ladder.rungs):
                if rung.holds(axes):
                    key = ladder.rest(axes)
                    groups.setdefault(key, {}).setdefault(number, []).append(run)
                    axes_of.setdefault(key, axes)
    # A group on a single rung has nothing to compare: its runs are there for another ladder.
    several = {key: rungs for key, rungs in groups.items() if len(rungs) > 1}
    varying = _varying([dict(key) for key in several])
    for key, rungs in several.items():
        first = axes_of[key]
        common = [name for name, _ in key if name in varying]
        # If the ladder's own rungs differ in workers or epochs, those of its first run are shown.
        axes = {name: first[name] for name in ("workers", "epochs", *common)}
        yield _waterfall(ladder, axes, rungs, counting)


def _varying(keys: list[dict[str, str]]) -> set[str]:
    return {name for key in keys for name in key if len({other[name] for other in keys}) > 1}


def _waterfall(
    ladder: Ladder, axes: dict[str, Any], rungs: dict[int, list[PlannedRun]], counting: dict[str, Record]
) -> Waterfall:
    measured: list[tuple[Rung, list[Record]]] = []
    skipped = []
    for number, rung in enumerate(ladder.rungs):
        runs = rungs.get(number, [])
        records = [counting[run.run_id] for run in runs if run.run_id in counting]
        if (reason := _skipped(rung, runs, records, measured)) is not None:
            skipped.append(reason)
        else:
            measured.append((rung, records))
    steps = [
        step
        for above, below in pairwise(measured)
        if (step := _step(above, below, measured[-1][1])) is not None
    ]
    whole = _step(measured[0], measured[-1], measured[-1][1]) if len(measured) > 2 else None
    times = [
        (rung.label, estimate([each.train_s for each in records if each.train_s]))
        for rung, records in measured
    ]
    return Waterfall(
        ladder=ladder.name,
        axes=axes,
        rungs=[(label, found) for label, found in times if found is not None],
        steps=steps,
        whole=whole,
        skipped=skipped,
        complete=_is_complete(ladder, rungs, counting, measured),
    )


def _is_complete(
    ladder: Ladder,
    rungs: dict[int, list[PlannedRun]],
    counting: dict[str, Record],
    measured: list[tuple[Rung, list[Record]]],
) -> bool:
    """Whether its first and last rungs were measured; the last may be the same run as the one before."""
    last = {run.run_id for run in rungs.get(len(ladder.rungs) - 1, []) if run.run_id in counting}
    return (
        bool(measured)
        and measured[0][0] is ladder.rungs[0]
        and last == {record.run_id for record in measured[-1][1]}
    )


def _skipped(
    rung: Rung, runs: list[PlannedRun], records: list[Record], measured: list[tuple[Rung, list[Record]]]
) -> SkippedRung | None:
    """Why a rung is not shown; None if it is."""
    if not runs:
        return SkippedRung(rung.label, "no such run")
    if not records:
        impossible = next((run.cannot_run for run in runs if run.cannot_run), None)
        return SkippedRung(rung.label, "impossible" if impossible else "not yet", impossible or "")
    if not any(record.timed for record in records):
        first = records[0]
        if first.standin is not None:
            return SkippedRung(rung.label, "stand-in", first.standin)
        return SkippedRung(rung.label, "disturbed", first.disturbed or "")
    for other, others in measured:
        if {record.run_id for record in records} == {record.run_id for record in others}:
            return SkippedRung(rung.label, "same run", other.label)
    if measured and not paired_by_seed(measured[-1][1], records):
        return SkippedRung(rung.label, "no common seed")
    return None


def _step(
    above: tuple[Rung, list[Record]], below: tuple[Rung, list[Record]], last: list[Record]
) -> Step | None:
    pairs = paired_by_seed(above[1], below[1])
    seconds = mean_difference([_train_s(upper) - _train_s(lower) for upper, lower in pairs])
    if seconds is None:
        return None
    ends = {record.specification.work.seed: _train_s(record) for record in last}
    shares = [
        (_train_s(upper) - _train_s(lower)) / ends[upper.specification.work.seed] * 100
        for upper, lower in pairs
        if ends.get(upper.specification.work.seed)
    ]
    return Step(
        above=above[0].label,
        below=below[0].label,
        seconds=seconds,
        percent=mean_difference(shares),
        phases=_changed_most(pairs),
    )


def _train_s(record: Record) -> float:
    return record.train_s or 0.0  # `paired_by_seed` takes only records that have one


def _changed_most(pairs: list[tuple[Record, Record]]) -> list[tuple[str, float]]:
    split = [(_phases(upper), _phases(lower)) for upper, lower in pairs]
    means = [
        (name, fmean(upper[name] - lower[name] for upper, lower in split)) for name in (*IN_TRAINING, "other")
    ]
    return sorted(means, key=lambda each: -abs(each[1]))[:MOST]


def _phases(record: Record) -> dict[str, float]:
    """train_s by phase; `other` is the unnamed rest of training (a record's own covers the whole run)."""
    named = {name: (record.phases or {}).get(name, 0.0) for name in IN_TRAINING}
    return named | {"other": _train_s(record) - sum(named.values())}
