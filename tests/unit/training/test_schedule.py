"""The learning-rate schedule."""

from __future__ import annotations

from training.schedule import learning_rate_factor


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    factors = [learning_rate_factor(step, 4, 12) for step in range(13)]
    assert factors[:5] == [0, 0.25, 0.5, 0.75, 1]
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert factors[8] == 0.5
    assert factors[12] == 0
    assert learning_rate_factor(0, 0, 10) == 1
