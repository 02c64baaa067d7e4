"""Runs paired by seed, and the ratios of their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from experiments.analysis.statistics import Ratio, paired_ratio
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
