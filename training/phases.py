"""Where the time goes: one phase at a time, so that the phases add up by construction."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from training.spec import PHASES

NANOSECOND = 1e-9  # s


class Clock(Protocol):
    """What stamps the borders between phases."""

    def stamp(self) -> Any:
        """A mark in time, cheap to take."""

    def nanoseconds(self, start: Any, end: Any) -> int:
        """The time between two marks; both have been reached."""

    def settle(self) -> None:
        """Wait until every mark that was taken has been reached."""


class HostClock:
    """The processor's clock. On the CPU an operation is done when its call returns."""

    def stamp(self) -> int:
        return time.perf_counter_ns()

    def nanoseconds(self, start: int, end: int) -> int:
        return end - start

    def settle(self) -> None:
        return None


class CudaClock:
    """CUDA events: a GPU works behind its caller's back; to wait for it at each border would slow it."""

    def stamp(self) -> Any:
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def nanoseconds(self, start: Any, end: Any) -> int:
        milliseconds: float = start.elapsed_time(end)
        return round(milliseconds * 1e6)

    def settle(self) -> None:
        import torch

        torch.cuda.synchronize()


class Phases:
    """A stopwatch that is always in exactly one phase; `begin` ends the one before.

    Marks are kept and added up by `settle`, once an epoch: taking one costs about a microsecond.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or HostClock()
        self._nanoseconds = dict.fromkeys(PHASES, 0)
        self._marks: list[tuple[str, Any]] = []

    def begin(self, phase: str) -> None:
        """What follows belongs to `phase`, one of `training.spec.PHASES`.

        Raises:
            KeyError: there is no such phase.
        """
        self._nanoseconds[phase]  # a wrong name must fail here, not an epoch later
        self._marks.append((phase, self._clock.stamp()))

    def settle(self) -> None:
        """Add up the marks taken so far; the phase goes on."""
        if not self._marks:
            return
        phase, _ = self._marks[-1]
        self._marks.append((phase, self._clock.stamp()))
        self._clock.settle()
        for (name, start), (_, end) in zip(self._marks, self._marks[1:], strict=False):
            self._nanoseconds[name] += self._clock.nanoseconds(start, end)
        self._marks = self._marks[-1:]

    def seconds(self) -> dict[str, float]:
        """Seconds by phase, up to the last `settle`, for the phases that took any."""
        return {name: spent * NANOSECOND for name, spent in self._nanoseconds.items() if spent}

    def total(self) -> float:
        """Seconds from the first `begin` to the last `settle`: the sum of all phases."""
        return sum(self._nanoseconds.values()) * NANOSECOND


def clock_for(device: str) -> Clock:
    """The clock that sees when work on `device` ("cpu" or "cuda") is done."""
    clocks: dict[str, Callable[[], Clock]] = {"cpu": HostClock, "cuda": CudaClock}
    return clocks[device]()
