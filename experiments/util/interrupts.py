"""Signals, noted when they come and acted upon where it is safe.

A handler only notes the signal and wakes the loop: raising in the middle of anything would leave it half
done. What only reads, and writes files that are there whole or not at all, has no such loop, and is ended
at once.
"""

from __future__ import annotations

import queue
import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal asked for the end; what was running has been stopped."""


class Interrupts:
    """Notes the signals that ask for the end, for as long as the context is open."""

    def __init__(self, *, at_once: bool = False) -> None:
        """`at_once`: a signal raises KeyboardInterrupt, wherever that is; else it is only noted."""
        self._at_once = at_once
        self.received: list[signal.Signals] = []
        self.wake: queue.SimpleQueue[None] = (
            queue.SimpleQueue()
        )  # its put() may be called from a signal handler
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            # Where hanging up was to be ignored (nohup), it still is.
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
        """What a shell reports for a program that the first signal ended: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.received[0]

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self.received:
            raise Interrupted

    def wait(self, seconds: float) -> None:
        """Returns after `seconds`, or sooner when something has happened."""
        try:
            self.wake.get(timeout=seconds)
        except queue.Empty:
            return
