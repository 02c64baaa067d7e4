"""A step that is nothing but a wait: whatever longer it takes is what a launcher takes from every step.

torchrun null_step.py --steps 400 --step-ms 43.5 --lines 1

After each wait it prints so many lines, as scripts do. Ranks don't meet. What a step takes beyond the wait
goes into the figures of its epoch, in milliseconds: mean, percentiles and maximum.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

try:
    import trainbed  # type: ignore[import-not-found]  # it is there where trainbed runs this
except ImportError:  # elsewhere it only prints
    trainbed = None

BEFORE_S = 1.0  # from the first report, at which the rank takes this process's census, to the first step
SPIN_S = 0.002  # before the end of a wait, during which it asks for the time instead of sleeping


def wait_until(moment: float) -> None:
    """Return at this moment (`time.perf_counter`); as training.simulated, which a script can't import."""
    left = moment - time.perf_counter() - SPIN_S
    if left > 0:
        time.sleep(left)
    while time.perf_counter() < moment:
        pass


def main() -> None:
    """Take the steps, epoch by epoch."""
    parser = argparse.ArgumentParser(description="Steps that are nothing but a wait.")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400, help="of an epoch")
    parser.add_argument("--step-ms", type=float, default=43.5)
    parser.add_argument("--lines", type=int, default=0, help="printed after each step")
    given = parser.parse_args()
    if trainbed:
        trainbed.phase("other")
        time.sleep(BEFORE_S)
    for epoch in range(1, given.epochs + 1):
        beyond = []
        if trainbed:
            trainbed.phase("forward")
        for step in range(1, given.steps + 1):
            began = time.perf_counter()
            wait_until(began + given.step_ms / 1000)
            for line in range(1, given.lines + 1):
                print(f"epoch {epoch}, step {step}: line {line} of {given.lines}")
            beyond.append((time.perf_counter() - began) * 1000 - given.step_ms)
        share = statistics.quantiles(beyond, n=100)
        figures = {
            "beyond_ms": statistics.fmean(beyond),
            "beyond_ms_median": share[49],
            "beyond_ms_p95": share[94],
            "beyond_ms_p99": share[98],
            "beyond_ms_most": max(beyond),
        }
        if trainbed:
            trainbed.phase("other")
            trainbed.metrics(epoch, **figures)
        print(f"epoch {epoch}: {figures}")
    if trainbed:
        # What was done, so that stacks are compared only where they did the same.
        trainbed.digest({"steps": torch.tensor([given.epochs, given.steps, given.lines, given.step_ms])})


if __name__ == "__main__":
    main()
