"""Where the time goes: one phase at a time, so the phases add up by construction."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from training.spec import PHASES

NANOSECOND = 1e-9  # s
UNSPLIT = ""  # stands for all phases of a step that is not sampled
SAMPLE_EVERY = {"cpu": 1, "cuda": 10}  # steps


class Clock(Protocol):
    """Marks the boundaries between phases."""

    def stamp(self) -> Any:
        """A mark in time, cheap to take."""

    def nanoseconds(self, start: Any, end: Any) -> int:
        """The time between two marks, both already reached."""

    def settle(self) -> None:
        """Wait until all marks taken so far have been reached."""


class HostClock:
    """The processor's clock. On the CPU an operation is done when its call returns."""

    def stamp(self) -> int:
        return time.perf_counter_ns()

    def nanoseconds(self, start: int, end: int) -> int:
        return end - start

    def settle(self) -> None:
        return None


class CudaClock:
    """CUDA events: a GPU works asynchronously, and waiting for it at every boundary would slow it down."""

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
    """A stopwatch that is always in exactly one phase; `begin` ends the previous one.

    Marks are collected, and added up by `settle` once an epoch: taking one costs about a microsecond on the
    CPU. Where it costs more, the boundaries inside a step are marked only in some steps (`sample_every`), and
    the time of the other steps is split in the same proportions.
    """

    def __init__(self, clock: Clock | None = None, sample_every: int = 1) -> None:
        self._clock = clock or HostClock()
        self._sample_every = sample_every
        self._nanoseconds = dict.fromkeys(PHASES, 0)
        self._in_sampled_steps = dict.fromkeys(PHASES, 0)
        self._marks: list[tuple[str, bool, Any]] = []  # phase, whether in a sampled step, stamp
        self._steps = 0
        self._in_step = False
        self._sampled = False
        self._interrupted: tuple[str, bool] | None = None

    def begin(self, phase: str) -> None:
        """Begin `phase`, one of `training.spec.PHASES`.

        Raises:
            KeyError: there is no such phase.
        """
        self._nanoseconds[phase]  # a wrong name must fail here, not an epoch later
        if not self._in_step or self._sampled:
            self._marks.append((phase, self._in_step, self._clock.stamp()))

    def begin_step(self) -> None:
        """Begin a step of training; every step is taken to split into phases alike."""
        self._in_step, self._sampled = True, self._steps % self._sample_every == 0
        self._steps += 1
        if not self._sampled:
            self._marks.append((UNSPLIT, False, self._clock.stamp()))

    def end_step(self, phase: str) -> None:
        """End the step, and begin `phase`."""
        self._in_step = False
        self.begin(phase)

    def interrupt(self, phase: str) -> None:
        """Begin `phase` amid another one, also in a step that is not sampled, until `go_on`.

        What it takes is all its own: other steps are not split by it.
        """
        self._interrupted = self._marks[-1][:2] if self._marks else None
        self._marks.append((phase, False, self._clock.stamp()))

    def go_on(self) -> None:
        """Return to what was interrupted; if there was nothing, the phase goes on."""
        if self._interrupted is not None:
            self._marks.append((*self._interrupted, self._clock.stamp()))

    @property
    def current(self) -> str:
        """The current phase; "" before the first one and in a step that is not sampled."""
        return self._marks[-1][0] if self._marks else ""

    def settle(self) -> None:
        """Add up the marks taken so far; the current phase continues."""
        if not self._marks:
            return
        phase, in_step, _ = self._marks[-1]
        self._marks.append((phase, in_step, self._clock.stamp()))
        self._clock.settle()
        unsplit = 0
        for (name, sampled, start), (_, _, end) in zip(self._marks, self._marks[1:], strict=False):
            spent = self._clock.nanoseconds(start, end)
            if name == UNSPLIT:
                unsplit += spent
                continue
            self._nanoseconds[name] += spent
            if sampled:
                self._in_sampled_steps[name] += spent
        self._split(unsplit)
        self._marks = self._marks[-1:]

    def _split(self, unsplit: int) -> None:
        """Split the time of the steps that were not sampled, in the proportions of those that were."""
        whole = sum(self._in_sampled_steps.values())
        rest = unsplit
        for name, spent in self._in_sampled_steps.items():
            if unsplit and spent:
                share = unsplit * spent // whole
                self._nanoseconds[name] += share
                rest -= share
        self._nanoseconds["other"] += rest  # what rounding leaves over

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
