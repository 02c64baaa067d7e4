"""What each stack adds to a run, part by part: differences to the baseline's runs of the same seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import PREPARING, Cell, Figures
from experiments.analysis.ladders import IN_TRAINING
from experiments.analysis.noise import Noise
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import (
    Difference,
    Estimate,
    differences_together,
    estimate,
    mean_difference,
)
from experiments.analysis.verdicts import sign
from experiments.records.compose import CLOCK_TOLERANCE_S
from experiments.records.record import Record

STEPS: Final = "steps"
BEFORE, UNNAMED, AFTER = "other, before the stack", "other, in training", "other, after the stack"
OTHER: Final = "other"
TOTAL: Final = "total_s"
PER_STEP: Final = "per step"
IN_STEPS: Final = ("data", "forward", "backward", "exposed_sync", "optimiser")
PARTS: Final = (
    *("queue", "launch", PREPARING, "imports", "rendezvous", STEPS, "evaluation", "checkpoint", "shutdown"),
    *(BEFORE, UNNAMED, AFTER, OTHER),
)
"""They add up to total_s, with either `other` or its three pieces."""
OF_TRAINING: Final = (STEPS, "evaluation", "checkpoint", UNNAMED)  # the parts of train_s
NOTICED_S: Final = 0.005  # a part is left out if its mean on the baseline and all differences are smaller


@dataclass(frozen=True)
class Part:
    """One part of a run's time: how long it is on the baseline, and how much longer on other stacks."""

    name: str  # of PARTS, TOTAL or PER_STEP
    baseline: Estimate
    added: dict[str, Difference]  # by stack; the intervals hold for all parts and sums of the report

    @property
    def is_sum(self) -> bool:
        """Whether it says the same as other parts, so that it is not claimed again."""
        return self.name in (TOTAL, PER_STEP)


@dataclass(frozen=True)
class Added:
    """The parts of one of the baseline's cells, beside cells that differ from it only in their stack."""

    baseline: Cell
    cells: list[Cell]  # of other stacks, with pairs
    parts: list[Part]


def added(figures: Figures, noise: Noise) -> list[Added]:
    """Every cell of the baseline whose runs can be paired with another stack's.

    No difference in a part is claimed that is below the noise floor of what it is a part of: train_s, or the
    time outside it. `noise` has both.
    """
    campaign = figures.campaign
    stacks = list(dict.fromkeys(cell.stack for cell in figures.cells if cell.stack != campaign.baseline))
    found = []
    for base in (cell for cell in figures.cells if cell.stack == campaign.baseline):
        beside = [sibling(figures.cells, base, stack=stack) for stack in stacks]
        cells = [cell for cell in beside if cell and paired_by_seed(cell.records, base.records)]
        if cells:
            parts = [_above_noise(part, base, noise) for part in _parts(base, cells)]
            found.append(Added(base, cells, parts))
    return _together(found, campaign.looks)


def certain(difference: Difference) -> bool:
    """Whether a difference may be claimed, by its interval and the noise floor."""
    return bool(sign(difference))


def parts_of(record: Record, *, whole: bool = False) -> dict[str, float]:
    """The time of a run that is ok by parts, in seconds; with `whole`, `other` is in one piece.

    The pieces of `other` are Ansible's work before the stack's command, training time in no named phase, and
    all that follows when the stack says that the job is over. The first compares the controller's clock with
    a node's.
    """
    phases, launch = record.phases, record.launch
    assert phases is not None and launch is not None and record.train_s is not None
    found = {name: phases[name] for name in PARTS if name in phases and name != OTHER}
    found[STEPS] = sum(phases[name] for name in IN_STEPS)
    # When its clock began: runs that start together wait before that, until nothing else runs.
    assert record.ended is not None and record.total_s is not None
    outside_s = launch.started - (record.ended.timestamp() - record.total_s)
    if record.prepared is not None:
        found[PREPARING] = record.prepared.seconds
        within_s = record.prepared.seconds_within(launch.started, launch.ended)
        outside_s -= record.prepared.seconds - within_s
    if whole:
        found[OTHER] = phases[OTHER]
    else:
        found[BEFORE] = outside_s
        found[UNNAMED] = record.train_s - sum(phases[name] for name in IN_TRAINING)
        found[AFTER] = phases[OTHER] - found[BEFORE] - found[UNNAMED]
    return {name: found[name] for name in PARTS if name in found}


def _parts(base: Cell, cells: Sequence[Cell]) -> list[Part]:
    timed = [record for cell in (base, *cells) for record in cell.records if record.phases is not None]
    # If clocks are apart, or a program names more than its training, the pieces of `other` make no sense.
    whole = any(
        parts_of(record)[piece] < -CLOCK_TOLERANCE_S for record in timed for piece in (BEFORE, UNNAMED, AFTER)
    )
    split = {record.run_id: parts_of(record, whole=whole) for record in timed}
    for record in timed:
        work = record.specification.work
        parts = split[record.run_id]
        parts[TOTAL] = sum(parts.values())
        if not work.data.has_own_loop:
            parts[PER_STEP] = parts[STEPS] / work.steps
    names = (*PARTS, TOTAL, PER_STEP)
    found = [_part(name, base, cells, split) for name in names]
    return [part for part in found if part is not None and _is_noticed(part)]


def _part(
    name: str, base: Cell, cells: Sequence[Cell], split: Mapping[str, Mapping[str, float]]
) -> Part | None:
    if not any(name in parts for parts in split.values()):
        return None

    def of(record: Record) -> float:
        return split[record.run_id].get(name, 0.0)  # only preparing is a part of some runs alone

    found = estimate([of(record) for record in base.records if record.run_id in split])
    differences = {
        cell.stack: mean_difference(
            [of(ours) - of(theirs) for ours, theirs in paired_by_seed(cell.records, base.records)]
        )
        for cell in cells
    }
    assert found is not None
    return Part(name, found, {stack: each for stack, each in differences.items() if each is not None})


def _above_noise(part: Part, base: Cell, noise: Noise) -> Part:
    """The part, with its noise floor in seconds; sums, of which nothing is claimed, have none."""
    of_training = None if noise.floor is None or base.train_s is None else noise.floor * base.train_s.mean
    known = [each for each in (of_training, noise.outside_s) if each is not None]
    floor = of_training if part.name in OF_TRAINING else noise.outside_s
    if part.name == OTHER:  # it has pieces of both
        floor = sum(known) if known else None
    if part.is_sum or floor is None:
        return part
    return replace(part, added={stack: replace(each, floor=floor) for stack, each in part.added.items()})


def _is_noticed(part: Part) -> bool:
    longest = max(abs(part.baseline.mean), *(abs(each.mean) for each in part.added.values()))
    return part.is_sum or longest >= NOTICED_S


def _together(found: Sequence[Added], looks: int) -> list[Added]:
    """The same, with intervals that hold for all differences at once, and p corrected alike."""
    plain = [each for of in found for part in of.parts for each in part.added.values()]
    floors = iter([each.floor for each in plain])
    corrected = iter(differences_together(plain, looks))

    def together(part: Part) -> Part:
        return replace(
            part, added={stack: replace(next(corrected), floor=next(floors)) for stack in part.added}
        )

    return [replace(each, parts=[together(part) for part in each.parts]) for each in found]
