"""A rank of the blind test: `python -m tests.blind.rank DOSES WAITS --spec …`, where DOSES is a JSON object.

With no doses it is a rank as any other; each dose is a wait in one place (see `tests.blind.launch.Launch`).
How long each of these waits really took goes into a file in the folder WAITS when the rank ends.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO


class Waits:
    """Waits of one length, and how long each really took: a sleep wakes late on a busy machine."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is of a wait."""
        self._seconds = seconds
        self.took: list[float] = []  # s

    def __call__(self, *_: Any) -> None:
        """Wait once."""
        began = time.perf_counter()
        time.sleep(self._seconds)
        self.took.append(time.perf_counter() - began)

    def write_at_exit(self, file: Path) -> None:
        """When the process ends, write the seconds of every wait into a file, as a JSON list."""
        atexit.register(lambda: file.write_text(json.dumps(self.took), encoding="utf-8"))


class SlowOutput:
    """A stream that takes a while for each line."""

    def __init__(self, stream: TextIO, wait: Callable[[], None]) -> None:
        """`wait` is called for each line."""
        self._stream, self._wait = stream, wait

    def write(self, text: str) -> int:
        """Write, and wait for each end of a line."""
        for _ in range(text.count("\n")):
            self._wait()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


Places = Mapping[str, Callable[[Waits], None]]
"""By factor, what puts a wait there."""


def slow_down(doses: dict[str, float], waits: Path, places: Places) -> None:
    """Put waits of so many ms into their places; how long they take goes into the folder `waits`."""
    for name, dose in doses.items():
        if name == "threads":
            sys.setswitchinterval(60.0)  # so that the thread keeps the interpreter until it sleeps
            threading.Thread(target=_hold_interpreter, args=(dose / 1000,), daemon=True).start()
            continue
        wait = Waits(dose / 1000)
        wait.write_at_exit(waits / f"{name}-{os.environ['RANK']}.json")
        places[name](wait)


def slow_output(wait: Waits) -> None:
    """Each line that is printed waits."""
    sys.stdout = SlowOutput(sys.stdout, wait)


def _slow_tokenizer(wait: Waits) -> None:
    from training.workloads.text_classification.untokenised import Untokenised

    usual = Untokenised.tokens

    def tokens(self: Untokenised, rows: Any) -> Any:
        wait()
        return usual(self, rows)

    Untokenised.tokens = tokens  # type: ignore[method-assign]


def _slow_hook(wait: Waits) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    # Not a hook of the model's forward pass: the simulated wait has that pass in it, and would hide it.
    register_optimizer_step_post_hook(wait)


def _slow_copies(wait: Waits) -> None:
    loop: Any = importlib.import_module("training.loop")
    usual = loop.to_device

    def to_device(batch: Any, device: Any) -> Any:
        wait()
        return usual(batch, device)

    loop.to_device = to_device


IN_JOB: Final[Places] = {
    "printed_lines": slow_output,
    "tokenizing": _slow_tokenizer,
    "hook": _slow_hook,
    "hidden": _slow_copies,
}


def _hold_interpreter(seconds: float) -> None:
    while True:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass
        time.sleep(seconds)


if __name__ == "__main__":
    slow_down(json.loads(sys.argv[1]), Path(sys.argv[2]), IN_JOB)
    from training.rank import launch_rank

    launch_rank("One rank of the blind test.", sys.argv[3:])
