"""The stopwatch: always in one phase, so the phases add up."""

from __future__ import annotations

import time

import pytest

from training.metrics.phases import Phases
from training.spec import PHASES


class SteppingClock:
    """A clock that takes its readings from a list."""

    def __init__(self, *readings: int) -> None:
        self._readings = iter(readings)

    def stamp(self) -> int:
        return next(self._readings)

    def nanoseconds(self, start: int, end: int) -> int:
        return end - start

    def settle(self) -> None:
        return None


def test_each_phase_ends_where_the_next_begins() -> None:
    phases = Phases(SteppingClock(0, 10, 30, 60, 100, 150))
    for name in ("data", "forward", "backward", "data"):
        phases.begin(name)
    phases.settle()
    assert phases.seconds() == pytest.approx({"data": 50e-9, "forward": 20e-9, "backward": 30e-9})
    phases.settle()
    assert phases.seconds()["data"] == pytest.approx(100e-9)
    assert phases.total() == pytest.approx(150e-9)


def test_they_add_up_to_the_time_that_passed() -> None:
    phases = Phases()
    started = time.perf_counter()
    for name in PHASES * 50:
        phases.begin(name)
    phases.settle()
    passed = time.perf_counter() - started
    assert sum(phases.seconds().values()) == pytest.approx(phases.total(), abs=1e-12)
    assert phases.total() == pytest.approx(passed, abs=2e-3)


def test_a_phase_that_there_is_not() -> None:
    with pytest.raises(KeyError):
        Phases().begin("lunch")


def test_steps_that_are_not_sampled_are_split_as_those_that_are() -> None:
    # Sampled: 0-10 data, 10-40 forward, 40 other; not sampled: 50-110; 110 other, 120 settled.
    phases = Phases(SteppingClock(0, 10, 40, 50, 110, 120), sample_every=2)
    for _ in range(2):
        phases.begin_step()
        phases.begin("data")
        phases.begin("forward")
        phases.end_step("other")
    phases.settle()
    assert phases.seconds() == pytest.approx({"data": 25e-9, "forward": 75e-9, "other": 20e-9})
    assert phases.total() == pytest.approx(120e-9)


def test_what_interrupts_a_step_is_all_its_own() -> None:
    # Sampled: 0-10 data, 10-20 forward, interrupted 20-70, 70-90 forward; not sampled: 100-120, interrupted
    # 120-180, 180-220; 220 other, 230 settled.
    phases = Phases(SteppingClock(0, 10, 20, 70, 90, 100, 120, 180, 220, 230), sample_every=2)
    for _ in range(2):
        phases.begin_step()
        phases.begin("data")
        phases.begin("forward")
        phases.interrupt("other")
        phases.go_on()
        phases.end_step("other")
    phases.settle()
    # Of the second step's 60 a quarter is data, as of the first one's 40.
    assert phases.seconds() == pytest.approx({"data": 25e-9, "forward": 75e-9, "other": 130e-9})
    assert phases.total() == pytest.approx(230e-9)


def test_what_interrupts_nothing_goes_on() -> None:
    phases = Phases(SteppingClock(0, 10))
    phases.interrupt("other")
    phases.go_on()
    phases.settle()
    assert phases.seconds() == pytest.approx({"other": 10e-9})


def test_a_wrong_name_fails_also_in_a_step_that_is_not_sampled() -> None:
    phases = Phases(SteppingClock(0, 1, 2), sample_every=2)
    for _ in range(2):
        phases.begin_step()
    with pytest.raises(KeyError):
        phases.begin("coffee")
