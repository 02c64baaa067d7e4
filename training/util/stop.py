"""SIGTERM and SIGINT: end soon, and say so."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable

from training.errors import Stopped

STOPPED_STATUS = 128 + signal.SIGTERM
"""Exit status of a process that ended because it was told to."""


class StopSignal:
    """Knows whether the process was told to stop.

    Python runs a signal's handler only between two of its own instructions, so a thread that waits inside a
    collective for a peer that is gone would never hear of it. The interpreter's wake-up socket is written at
    once, whatever the main thread does; a thread here reads it, and ends the process if it has not ended by
    itself in time.
    """

    def __init__(self, grace: float, last_words: Callable[[Stopped], None]) -> None:
        """Listen from now on; must be called from the main thread.

        Args:
            grace: seconds that the process has to end by itself.
            last_words: called once before the process is ended because it did not.
        """
        self.grace = grace
        self._last_words = last_words
        self._name: str | None = None
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        # If the socket were ever full, many signals have been seen already: nothing is lost.
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._sockets = reader, writer  # both ends must stay open as long as the process may be told
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
        self._last_words(self.stopped(f"it did not end by itself in {self.grace:g} s."))
        os._exit(STOPPED_STATUS)
