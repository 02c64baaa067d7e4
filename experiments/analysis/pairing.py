"""Runs paired by seed, and the ratios of their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from experiments.analysis.statistics import Difference, Ratio, paired_ratio, simultaneous
from experiments.records.record import Record

Clock = Literal["train_s", "total_s"]


def paired_by_seed(
    first: Sequence[Record], second: Sequence[Record], clock: Clock = "train_s"
) -> list[tuple[Record, Record]]:
    """Pairs of runs with the same seed; runs without this time are left out."""
    others = {record.specification.work.seed: record for record in second if getattr(record, clock)}
    return [
        (record, others[record.specification.work.seed])
        for record in first
        if getattr(record, clock) and record.specification.work.seed in others
    ]


def time_ratio(pairs: Sequence[tuple[Record, Record]], clock: Clock = "train_s") -> Ratio | None:
    """How many times as long the first run of each pair took as the second; None without pairs."""
    return paired_ratio([(getattr(above, clock), getattr(below, clock)) for above, below in pairs])


def outside_together(
    groups: Sequence[Sequence[tuple[Record, Record]]], looks: int = 1, floor: float | None = None
) -> list[Difference | None]:
    """How many seconds more the first runs of each group's pairs take outside train_s (total_s less train_s).

    The intervals hold for all groups at once, at each of several `looks`; None without pairs that have both
    times. `floor` is the noise floor, in seconds.
    """
    samples = [
        [outside_s(above) - outside_s(below) for above, below in pairs if above.total_s and below.total_s]
        for pairs in groups
    ]
    found = iter(simultaneous([sample for sample in samples if sample], looks))
    return [replace(next(found), floor=floor) if sample else None for sample in samples]


def outside_s(record: Record) -> float:
    """Seconds of a run outside train_s."""
    return (record.total_s or 0.0) - (record.train_s or 0.0)
