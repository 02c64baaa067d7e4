"""SIGTERM and SIGINT: exit soon, and say why."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable

from training.errors import Stopped

STOPPED_STATUS = 128 + signal.SIGTERM
"""Exit code of a process that was told to stop."""


class StopSignal:
    """Knows whether the process was told to stop.

    Python runs a signal's handler only between two bytecode instructions, so a main thread that waits in a
    collective for a lost peer would never notice the signal. The interpreter's wake-up socket is written
    immediately, whatever the main thread does; a thread here reads it, and ends the process if it has not
    exited by itself in time.
    """

    def __init__(self, grace: float, last_words: Callable[[Stopped], None]) -> None:
        """Listen from now on; must be called from the main thread.

        Args:
            grace: seconds that the process has to exit by itself.
            last_words: called once if it has not, before it is ended.
        """
        self.grace = grace
        self._last_words = last_words
        self._name: str | None = None
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        # A full socket means that many signals have already arrived: nothing is lost.
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._sockets = reader, writer  # both ends must stay open as long as signals may arrive
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._listen, name="stop-signal", daemon=True).start()

    def requested(self) -> bool:
        """Whether the process was told to stop."""
        return self._name is not None

    def stopped(self, found: str) -> Stopped:
        """The exception that says which signal ended the work, and what it `found` the process doing."""
        return Stopped(f"The process was told to stop by {self._name}: {found}")

    def _listen(self) -> None:
        while (number := self._sockets[0].recv(1)[0]) not in (signal.SIGTERM, signal.SIGINT):
            pass
        self._name = signal.Signals(number).name
        threading.Event().wait(self.grace)
        self._last_words(self.stopped(f"it did not exit by itself within {self.grace:g} s."))
        os._exit(STOPPED_STATUS)
