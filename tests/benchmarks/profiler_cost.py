"""What torch's profiler itself takes for each operator that it sees, on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch.profiler import ProfilerActivity, profile

OPERATORS: Final = 200  # that one call makes
ELEMENTS: Final = 1 << 12  # of what each works on
ROUNDS: Final = 50
MICRO: Final = 1e6


@dataclass(frozen=True)
class Cost:
    """Microseconds that the profiler takes for one operator."""

    own: float  # that look like the operator's own time
    caller: float  # that look like its caller's

    @property
    def both(self) -> float:
        """All that it takes for an operator."""
        return self.own + self.caller


NOTHING: Final = Cost(0.0, 0.0)


def measured(rounds: int = ROUNDS) -> Cost:
    """What it takes, from one operator that calls many small ones: with the profiler and without, in turns.

    The sum of both parts is the difference of the two medians. The caller's part is what the profiler says
    the calling operator takes itself, as that does next to nothing else.
    """
    tensors = [torch.ones(ELEMENTS) for _ in range(OPERATORS)]
    without: list[float] = []
    within: list[float] = []
    callers: list[float] = []
    for _ in range(rounds + 1):
        without.append(_seconds(lambda: torch._foreach_neg_(tensors)))
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            within.append(_seconds(lambda: torch._foreach_neg_(tensors)))
        (caller,) = (event for event in profiler.events() if event.name == "aten::_foreach_neg_")
        if len(caller.cpu_children) != OPERATORS:
            raise RuntimeError(
                f"The profiler saw {len(caller.cpu_children)} operators in a call that makes {OPERATORS}; "
                "this torch computes torch._foreach_neg_ in another way, so give another call here."
            )
        callers.append(caller.self_cpu_time_total / OPERATORS)
    # The first round warms up.
    both = max(statistics.median(within[1:]) - statistics.median(without[1:]), 0.0) / OPERATORS * MICRO
    caller_us = min(statistics.median(callers[1:]), both)
    return Cost(both - caller_us, caller_us)


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
