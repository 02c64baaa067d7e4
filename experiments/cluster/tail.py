"""The lines of a file on a node, as they are written."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Final

from experiments.util.processes import end_group

STOP_GRACE_S: Final = 2.0


class Tail:
    """One long-lived process that follows a file, which need not exist yet."""

    def __init__(
        self, shell: Sequence[str], file: str, take: Callable[[str], None], *, what_is_there: bool = True
    ) -> None:
        """Starts nothing yet.

        Args:
            shell: the command that runs a line of shell on the node.
            file: the file's path there.
            take: called with every line, from a thread of its own.
            what_is_there: begin with the lines that the file already has.
        """
        # `tail` ends with its parent on the node (the connection), even if nothing more is written.
        begin = "+1" if what_is_there else "0"
        self._command = [*shell, f"exec tail -n {begin} -s 1 --pid=$PPID -F {shlex.quote(file)}"]
        self._take = take
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts following; if the connection fails, no line comes."""
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                errors="replace",
                process_group=0,
            )
        except OSError:
            return
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the connection."""
        if self._process is None:
            return
        if self._process.poll() is None:
            end_group(self._process.pid, self._command[-1], STOP_GRACE_S)
        self._process.wait()
        if self._thread is not None:
            self._thread.join(STOP_GRACE_S)

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            self._take(line)
