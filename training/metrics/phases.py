"""Where the time goes: one phase at a time, so that the phases add up by construction."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from training.spec import PHASES

NANOSECOND = 1e-9  # s
UNSPLIT = ""  # stands for the phases of a step whose borders are not marked
SAMPLE_EVERY = {"cpu": 1, "cuda": 10}  # steps


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

    Marks are kept and added up by `settle`, once an epoch: taking one costs about a microsecond on the CPU.
    Where it costs more, the borders inside of a step are marked in some steps only (`sample_every`), and the
    time of the others is split as theirs was.
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

    def begin(self, phase: str) -> None:
        """What follows belongs to `phase`, one of `training.spec.PHASES`.

        Raises:
            KeyError: there is no such phase.
        """
        self._nanoseconds[phase]  # a wrong name must fail here, not an epoch later
        if not self._in_step or self._sampled:
            self._marks.append((phase, self._in_step, self._clock.stamp()))

    def begin_step(self) -> None:
        """A step of training begins: its phases are alike in every step."""
        self._in_step, self._sampled = True, self._steps % self._sample_every == 0
        self._steps += 1
        if not self._sampled:
            self._marks.append((UNSPLIT, False, self._clock.stamp()))

    def end_step(self, phase: str) -> None:
        """The step has ended; what follows belongs to `phase`."""
        self._in_step = False
        self.begin(phase)

    @property
    def current(self) -> str:
        """The phase that goes on; "" before the first one and in a step that is not sampled."""
        return self._marks[-1][0] if self._marks else ""

    def settle(self) -> None:
        """Add up the marks taken so far; the phase goes on."""
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
        """Give the time of the steps that were not sampled to the phases, as those that were had it."""
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
