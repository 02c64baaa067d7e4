"""Following a run through progress.jsonl on the shared storage, with one long-lived process.

Polling with Ansible would disturb what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.cluster.tail import Tail


class Progress:
    """The state of one run, from its events."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.epoch_figures: list[dict[str, Any]] = []
        self.step: dict[str, float] | None = None
        self.ranks: list[dict[str, Any]] = []  # what each rank reported last
        self.problems: list[str] = []
        self._steps_per_epoch = 0
        self._start: float | None = None
        self._now: float | None = None
        self._ended = False

    def add(self, line: str) -> None:
        """Takes one line of progress.jsonl; anything but an event (half a line, say) is skipped."""
        try:
            event = json.loads(line)
            kind, moment = event["event"], float(event["time"])
            if kind == "start":
                # A stack that restarts the training restarts the figures.
                self.epoch_figures, self.step, self.ranks, self._start = [], None, [], moment
                self._steps_per_epoch = int(event["steps_per_epoch"])
            elif kind == "step":
                step = {key: float(event[key]) for key in ("epoch", "step", "samples_per_s")}
                # A loss that is not finite arrives as null.
                self.step = step | {"loss": float("nan") if event["loss"] is None else float(event["loss"])}
                self.ranks = [each for each in event.get("ranks", []) if isinstance(each, dict)]
            elif kind == "epoch":
                self.epoch_figures.append(
                    {key: value for key, value in event.items() if key not in ("event", "time")}
                )
            elif kind == "error":
                self.problems.append(str(event["message"]))
            elif kind == "end":
                self._ended = True
            self._now = moment
        except (ValueError, TypeError, KeyError):
            return

    @property
    def seconds_left(self) -> float | None:
        """The time that training still needs, extrapolated; None before the first step."""
        if self.step is None or self._start is None or self._now is None or not self._steps_per_epoch:
            return None
        done = (self.step["epoch"] - 1) * self._steps_per_epoch + self.step["step"]
        total = self.epochs * self._steps_per_epoch
        if done <= 0:
            return None
        # Only the node's own clock is used: this machine's may differ.
        return max(0.0, (self._now - self._start) / done * (total - done))

    def text(self) -> str:
        """The state in words: `epoch 1 of 2 · loss 0.61 · 210 samples/s`."""
        if self._ended:
            return "trained, bringing the data home"
        if self.step is None:
            return "training starts" if self._start is not None else "starting"
        return (
            f"epoch {self.step['epoch']:.0f} of {self.epochs} · loss {self.step['loss']:.2f} · "
            f"{self.step['samples_per_s']:.0f} samples/s"
        )

    @property
    def ended(self) -> bool:
        """Whether training is over."""
        return self._ended

    @property
    def milestone(self) -> tuple[int, bool, bool]:
        """Changes whenever the state is worth a line of its own."""
        return (int(self.step["epoch"]) if self.step else 0, self._start is not None, self._ended)


class Follower:
    """Reads progress.jsonl in a run directory on the cluster during the run."""

    def __init__(self, shell: Sequence[str], run_dir: str, progress: Progress, copy: Path) -> None:
        """Reads nothing yet; every line is later added to `copy`, for `watch`."""
        self.progress = progress
        self.fault: str | None = None  # why `copy` is incomplete
        self._copy = copy
        self._tail = Tail(shell, f"{run_dir}/progress.jsonl", self._take)

    def start(self) -> None:
        """Starts following. If the connection fails, there is no live progress, but no harm to the run."""
        self._tail.start()

    def stop(self) -> None:
        """Ends the connection."""
        self._tail.stop()

    def _take(self, line: str) -> None:
        self.progress.add(line)
        if self.fault is not None:
            return
        try:
            with self._copy.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:  # no reason to end the run: its outputs contain the events
            self.fault = error.strerror or str(error)


def duration(seconds: float) -> str:
    """`seconds` as a rough waiting time: `about 3 min`."""
    if seconds < 50:
        return f"about {max(5, round(seconds / 5) * 5)} s"
    if seconds < 5400:
        return f"about {max(1, round(seconds / 60))} min"
    return f"about {seconds / 3600:.1f} h"
