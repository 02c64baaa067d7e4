"""Signals, noted when they arrive and acted on where it is safe.

A handler only notes the signal and wakes the loop: raising at an arbitrary point would leave work half done.
Commands that only read, and write files atomically, have no such loop and end immediately.
"""

from __future__ import annotations

import queue
import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal asked the program to end; what was running has been stopped."""


class Interrupts:
    """Notes the signals that ask the program to end, while the context is open."""

    def __init__(self, *, at_once: bool = False) -> None:
        """`at_once`: a signal raises KeyboardInterrupt, wherever it arrives; otherwise it is only noted."""
        self._at_once = at_once
        self.received: list[signal.Signals] = []
        self.wake: queue.SimpleQueue[None] = (
            queue.SimpleQueue()
        )  # its put() may be called from a signal handler
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # Ignored signals stay ignored (SIGHUP under nohup).
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.received.append(signal.Signals(number))
        self.wake.put(None)
        if self._at_once:
            raise KeyboardInterrupt

    @property
    def exit_status(self) -> int:
        """The exit code that a shell reports for the first signal: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.received[0]

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self.received:
            raise Interrupted

    def wait(self, seconds: float) -> None:
        """Returns after `seconds`, or sooner if something happens."""
        try:
            self.wake.get(timeout=seconds)
        except queue.Empty:
            return
