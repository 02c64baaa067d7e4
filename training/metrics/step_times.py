"""How long steps took, as a distribution: a mean hides one in a hundred that takes ten times as long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SHARES = {"median_ms": 50, "p95_ms": 95, "p99_ms": 99, "longest_ms": 100}
"""By name in a rank's file: the percentile."""


def step_times(seconds: Sequence[float]) -> dict[str, float] | None:
    """The percentiles of `SHARES` in milliseconds, and how many `steps` there are; None without a step."""
    if not len(seconds):
        return None
    found = np.percentile(np.asarray(seconds) * 1000, list(SHARES.values()))
    return {"steps": len(seconds)} | dict(zip(SHARES, found.tolist(), strict=True))
