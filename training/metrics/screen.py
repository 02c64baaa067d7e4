"""What a person sees of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Any, Final, TextIO

from tqdm import tqdm

PLAIN_EVERY: Final = 15.0  # s


class Screen:
    """Shows a run's events."""

    def __init__(self, stream: TextIO) -> None:
        """Nothing is shown yet."""
        self._stream = stream
        self._epochs = 0
        self._metric = "loss"
        self._bar: Any = None
        self._shown = 0.0

    def show(self, event: str, figures: dict[str, Any]) -> None:
        """Show one event; events that a person has no use for are skipped."""
        if event == "start":
            self._epochs, self._metric = figures["epochs"], figures["metric"]
            sync = figures.get("gradient_sync")
            self._line(
                figures["model"]
                + (f", {figures['parameters']:,} parameters" if "parameters" in figures else "")
                + (f", gradient_sync {sync}" if sync not in (None, "dense") else "")
                + f"; {figures['data']}; {figures['world_size']} ranks, "
                + f"{self._epochs} epochs of {figures['steps_per_epoch']} steps"
            )
        elif event == "step":
            self._step(figures)
        elif event == "epoch":
            self._end_bar()
            value = figures.get(f"validation_{self._metric}")
            self._line(
                f"epoch {figures['epoch']} of {self._epochs}: "
                + (f"loss {figures['train_loss']:.4f}" if "train_loss" in figures else "done")
                + (f", validation {self._metric.replace('_', ' ')} {value:.4f}" if value is not None else "")
                + f", {figures['seconds']:.1f} s"
            )
        elif event == "test":
            self._line(f"test {self._metric.replace('_', ' ')} {figures[f'test_{self._metric}']:.4f}")
        elif "message" in figures:
            self._line(figures["message"])
        elif event == "resume":
            self._line(f"resuming from the checkpoint after step {figures['steps']}")

    def close(self) -> None:
        """Remove the bar."""
        self._end_bar()

    def _step(self, figures: dict[str, Any]) -> None:
        text = f"loss {figures['loss']:.4f}, {figures['samples_per_s']:.0f} samples/s"
        if not self._stream.isatty():
            if time.monotonic() - self._shown >= PLAIN_EVERY:
                self._shown = time.monotonic()
                self._line(
                    f"epoch {figures['epoch']} of {self._epochs}, "
                    f"step {figures['step']} of {figures['steps']}: {text}"
                )
            return
        if self._bar is None:
            label = f"epoch {figures['epoch']} of {self._epochs}"
            self._bar = tqdm(
                total=figures["steps"], desc=label, unit="step", file=self._stream, leave=False, mininterval=0
            )
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(figures["step"] - self._bar.n)

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _line(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()
