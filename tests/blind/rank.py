"""A rank of the blind test: `python -m tests.blind.rank DOSES --spec …`, where DOSES is a JSON object.

With no doses it is a rank as any other; each dose is a wait in one place (see `tests.blind.launch.Launch`).
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from typing import Any, TextIO


class SlowOutput:
    """A stream that takes a while for each line."""

    def __init__(self, stream: TextIO, seconds: float) -> None:
        """`seconds` is of a line."""
        self._stream, self._seconds = stream, seconds

    def write(self, text: str) -> int:
        """Write, and wait for each end of a line."""
        time.sleep(self._seconds * text.count("\n"))
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def slow_down(doses: dict[str, float]) -> None:
    """Put waits of so many ms into this process."""
    seconds = {name: dose / 1000 for name, dose in doses.items()}
    if "printed_lines" in seconds:
        sys.stdout = SlowOutput(sys.stdout, seconds["printed_lines"])
    if "tokenizing" in seconds:
        _slow_tokenizer(seconds["tokenizing"])
    if "hook" in seconds:
        _slow_hook(seconds["hook"])
    if "hidden" in seconds:
        _slow_copies(seconds["hidden"])
    if "threads" in seconds:
        sys.setswitchinterval(60.0)  # so that the thread keeps the interpreter until it sleeps
        threading.Thread(target=_hold_interpreter, args=(seconds["threads"],), daemon=True).start()


def _slow_tokenizer(seconds: float) -> None:
    from training.workloads.text_classification.untokenised import Untokenised

    usual = Untokenised.tokens

    def tokens(self: Untokenised, rows: Any) -> Any:
        time.sleep(seconds)
        return usual(self, rows)

    Untokenised.tokens = tokens  # type: ignore[method-assign]


def _slow_hook(seconds: float) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    # Not a hook of the model's forward pass: the simulated wait has that pass in it, and would hide it.
    register_optimizer_step_post_hook(lambda *_: time.sleep(seconds))


def _slow_copies(seconds: float) -> None:
    loop: Any = importlib.import_module("training.loop")
    usual = loop.to_device

    def to_device(batch: Any, device: Any) -> Any:
        time.sleep(seconds)
        return usual(batch, device)

    loop.to_device = to_device


def _hold_interpreter(seconds: float) -> None:
    while True:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass
        time.sleep(seconds)


if __name__ == "__main__":
    slow_down(json.loads(sys.argv[1]))
    from training.rank import launch_rank

    launch_rank("One rank of the blind test.", sys.argv[2:])
