"""Where figures go: lines of JSON, TensorBoard's scalars, and the screen."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

from training.metrics.screen import Screen
from training.util.files import append_event, append_lines

# Imported with everything else, before any timer of training starts.
try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ImportError as error:
    WHY_NO_SCALARS: str | None = str(error)
else:
    WHY_NO_SCALARS = None

PROGRESS: Final = "progress.jsonl"
STEPS: Final = "steps.jsonl"
SCALARS: Final = {
    "loss": "train/loss",
    "lr": "train/learning_rate",
    "samples_per_s": "speed/samples_per_s",
    "tokens_per_s": "speed/tokens_per_s",
    "memory_mb": "memory_mb",
    "train_loss": "epoch/train_loss",
}
"""TensorBoard's tag for each figure that has one, apart from the metrics of a validation."""


class Figures:
    """Writes the figures of a run into its folder."""

    def __init__(self, out: Path) -> None:
        """Files are created when there is something to write."""
        self._out = out
        self._scalars: _Scalars | None = None
        self._screen = Screen(sys.stderr)

    def event(self, event: str, figures: dict[str, Any]) -> None:
        """Append one line to `progress.jsonl`, and show it."""
        append_event(self._out / PROGRESS, event, figures)
        self._screen.show(event, figures)
        if event == "start" and WHY_NO_SCALARS is None:
            self._scalars = _Scalars(self._out / "tensorboard", figures["steps_per_epoch"])
        elif event == "start":
            self.event("note", {"message": f"No scalars for TensorBoard: {WHY_NO_SCALARS}."})
        if event == "epoch" and self._scalars:
            self._scalars.write([figures | {"step": 0, "epoch": figures["epoch"] + 1}])
        if event == "phases" and self._scalars:
            self._scalars.write_phases(figures["epoch"], figures["seconds"])

    def steps(self, rows: list[dict[str, Any]], ranks: list[dict[str, Any]]) -> None:
        """Append a line for each step; the last one is also an event, with every rank's last report."""
        append_lines(self._out / STEPS, rows)
        if self._scalars:
            self._scalars.write(rows)
        self.event("step", rows[-1] | {"ranks": ranks})

    def close(self) -> None:
        """Flush TensorBoard's file, and leave the screen tidy."""
        self._screen.close()
        if self._scalars:
            self._scalars.close()


class _Scalars:
    """TensorBoard's event file, with TensorBoard's own writer: torch's imports far more."""

    def __init__(self, folder: Path, steps_per_epoch: int) -> None:
        self._steps_per_epoch = steps_per_epoch
        self._writer = EventFileWriter(str(folder))

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Add the scalars of some steps, numbered from the start of training."""
        for row in rows:
            tags = SCALARS | {
                name: f"epoch/{name}"
                for name, value in row.items()
                if name.startswith("validation_") and isinstance(value, float)
            }
            values = [
                Summary.Value(tag=tag, simple_value=row[name]) for name, tag in tags.items() if name in row
            ]
            step = (row["epoch"] - 1) * self._steps_per_epoch + row["step"]
            self._add(step, values)

    def write_phases(self, epoch: int, seconds: dict[str, float]) -> None:
        """Add the seconds that each phase took in an epoch."""
        values = [Summary.Value(tag=f"phase/{name}", simple_value=spent) for name, spent in seconds.items()]
        self._add(epoch * self._steps_per_epoch, values)

    def _add(self, step: int, values: list[Any]) -> None:
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        """Write everything out."""
        self._writer.close()
