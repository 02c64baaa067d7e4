"""The distribution of the steps' times."""

from __future__ import annotations

import pytest

from training.metrics.step_times import step_times


def test_percentiles_are_in_milliseconds() -> None:
    seconds = [0.02] * 98 + [0.05, 0.4]
    found = step_times(seconds)
    assert found == pytest.approx(
        # Of 100 values the 99th percentile is a hundredth of the way from the 99th to the 100th.
        {"steps": 100, "median_ms": 20.0, "p95_ms": 20.0, "p99_ms": 53.5, "longest_ms": 400.0}
    )
    assert step_times([0.02]) == {"steps": 1} | dict.fromkeys(
        ("median_ms", "p95_ms", "p99_ms", "longest_ms"), 20.0
    )


def test_without_steps_there_is_none() -> None:
    assert step_times([]) is None
