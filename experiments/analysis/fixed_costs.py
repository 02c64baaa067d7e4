"""What a run costs whatever its length, beside its stack's bare start: that of an empty program.

The stack's command lasts from its submission to the first step, then trains, and ends after the last step.
What is not training is the same for one step and for a million. A bare start is the same command with an
empty function in the place of training; what a run takes beyond it is this project's own doing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from experiments.analysis.figures import PROGRAM, REPETITION, Cell, Figures
from experiments.analysis.ladders import IN_TRAINING
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import Difference, Estimate, estimate, simultaneous
from experiments.records.record import Record

AIM_S: Final = 5.0  # the most that a run should take beyond its stack's bare start
BEFORE_TRAINING: Final = ("queue", "launch", "imports", "rendezvous")  # phases of the stack's command

Verdict = Literal["within", "beyond", "open", "none"]
"""Of the aim: `open`: the interval has it inside; `none`: there is no interval to judge by."""


@dataclass(frozen=True)
class Bare:
    """A stack's bare start, and what its runs take beyond it; intervals of differences hold for all cells."""

    start_s: Estimate
    more_s: Difference  # within the stack's command, by pairs of the same seed
    more_with_around_s: Difference  # and with what is around the command

    @property
    def within_command(self) -> Verdict:
        """Whether the stack's command takes at most the aim more."""
        return _verdict(self.more_s)

    @property
    def in_all(self) -> Verdict:
        """The same with what is around it."""
        return _verdict(self.more_with_around_s)


@dataclass(frozen=True)
class FixedCosts:
    """The fixed costs of a cell's runs, in seconds."""

    cell: Cell
    to_first_step_s: Estimate  # from the start of the stack's command
    after_last_step_s: Estimate  # until its end
    both_s: Estimate
    around_s: Estimate  # before the stack's command and after it, until the data are on the controller
    bare: Bare | None  # None: no pair with a run of an empty program


def fixed_costs(figures: Figures) -> list[FixedCosts]:
    """Every cell that has times, but for repeated ones.

    None of a program with its own loop, whose first and last step are not known.
    """
    of_loop = not figures.campaign.has_own_loop
    cells = [cell for cell in figures.cells if of_loop and REPETITION not in cell.settings]
    timed = {at: [each for each in cell.records if each.phases] for at, cell in enumerate(cells)}
    starts = _bare_starts(figures)
    pairs = {
        at: found
        for at, records in timed.items()
        if (found := paired_by_seed(records, starts.get(_key(cells[at].axes), []), "total_s"))
    }
    more = [[_both_s(run) - _bare_s(start) for run, start in each] for each in pairs.values()]
    around = [[_around_s(run) for run, _ in each] for each in pairs.values()]
    with_around = [list(map(sum, zip(*each, strict=True))) for each in zip(more, around, strict=True)]
    looks = figures.campaign.looks
    bare = {
        at: Bare(_estimate(_bare_s(start) for _, start in pairs[at]), *both)
        for at, *both in zip(pairs, simultaneous(more, looks), simultaneous(with_around, looks), strict=True)
    }
    return [
        FixedCosts(
            cells[at],
            _estimate(map(_to_first_step_s, records)),
            _estimate(map(_after_last_step_s, records)),
            _estimate(map(_both_s, records)),
            _estimate(map(_around_s, records)),
            bare.get(at),
        )
        for at, records in timed.items()
        if records
    ]


def _bare_starts(figures: Figures) -> dict[str, list[Record]]:
    """The runs of an empty program, by the key of the cell that differs from theirs in nothing else."""
    axes = {run.run_id: run.axes for run in figures.campaign.wanted}
    found: dict[str, list[Record]] = {}
    for record in figures.bare:
        found.setdefault(_key(axes[record.run_id]), []).append(record)
    return found


def _key(axes: dict[str, Any]) -> str:
    return repr([(name, value) for name, value in axes.items() if name not in ("seed", PROGRAM[0])])


def _to_first_step_s(record: Record) -> float:
    """With training time in no named phase: most of that sets the model up, before the first step."""
    phases = record.phases or {}
    return sum(phases[name] for name in BEFORE_TRAINING) + _unnamed_s(record)


def _after_last_step_s(record: Record) -> float:
    return (record.phases or {})["shutdown"]


def _both_s(record: Record) -> float:
    return _to_first_step_s(record) + _after_last_step_s(record)


def _around_s(record: Record) -> float:
    return (record.phases or {})["other"] - _unnamed_s(record)


def _unnamed_s(record: Record) -> float:
    return (record.train_s or 0.0) - sum((record.phases or {})[name] for name in IN_TRAINING)


def _bare_s(record: Record) -> float:
    assert record.launch is not None  # the record of a run that is ok has one
    return record.launch.seconds


def _estimate(seconds: Iterable[float]) -> Estimate:
    found = estimate([*seconds])
    assert found is not None  # of at least one run
    return found


def _verdict(more: Difference) -> Verdict:
    if more.low is None or more.high is None:
        return "none"
    if more.high <= AIM_S:
        return "within"
    return "beyond" if more.low > AIM_S else "open"
