"""The learning-rate schedule."""

from __future__ import annotations

import pytest

from training.schedule import learning_rate_factor


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    factors = [learning_rate_factor(step, 4, 12) for step in range(13)]
    assert factors[:5] == [0, 0.25, 0.5, 0.75, 1]
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert factors[8] == 0.5
    assert factors[12] == 0
    assert learning_rate_factor(0, 0, 10) == 1


def test_every_schedule_warms_up_alike_and_then_goes_its_own_way() -> None:
    for schedule in ("linear", "cosine", "constant", "step"):
        assert [learning_rate_factor(step, 4, 22, schedule) for step in range(5)] == [0, 0.25, 0.5, 0.75, 1]
    after = {
        schedule: [learning_rate_factor(step, 4, 22, schedule) for step in (9, 10, 13, 16, 20, 22)]
        for schedule in ("cosine", "constant", "step")
    }
    assert after["constant"] == [1.0] * 6
    assert after["step"] == pytest.approx([1, 0.1, 0.1, 0.01, 0.001, 0.001])
    # Half of the way is half of the rate, and its end is 0.
    assert after["cosine"][2] == pytest.approx(0.5) and after["cosine"][-1] == pytest.approx(0)
    assert after["cosine"] == sorted(after["cosine"], reverse=True)
