"""What happens once a command that runs a matrix has said its last word: its note, and the user's hook."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Final

from experiments.campaign.campaign import Standing
from experiments.campaign.running_note import NoteWriter
from experiments.util.errors import UserError
from experiments.util.interrupts import Interrupts
from experiments.util.screen import Screen

LOOK_EVERY_S: Final = 0.5
# make hands its variables on to every make below it; in a hook that calls `make matrix` or `make report`,
# they would stand for that one's, and the hook would be run again at its end.
OF_MAKE: Final = (
    *("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"),
    *("ARGS", "CAMPAIGN", "DETACH", "HOOK", "MATRIX"),
)
RUNS: Final = ("TRAINBED_RUNS_DONE", "TRAINBED_RUNS_FAILED", "TRAINBED_RUNS_MISSING")


class AtEnd:
    """Ends a command's note, and runs its hook."""

    def __init__(self, hook: str | None, screen: Screen, interrupts: Interrupts) -> None:
        """`hook`: a shell command; None: there is none."""
        self._hook = hook
        self._screen = screen
        self._interrupts = interrupts
        self.note: NoteWriter | None = None  # None: the command ended before it began with the matrix

    def __call__(self, exit_code: int | None) -> None:
        """Does it; `exit_code` is the command's, None after an exception that nothing expects."""
        if self.note is None:
            return
        self.note.ends(1 if exit_code is None else exit_code)
        if self._hook is not None:
            self._run(self._hook, self._variables(self.note, exit_code))

    def _variables(self, note: NoteWriter, exit_code: int | None) -> dict[str, str]:
        standing = self._standing(note)
        counts = [] if standing is None else [standing.done, standing.failed, standing.missing]
        return dict.fromkeys(RUNS, "") | {
            "TRAINBED_MATRIX": note.matrix,
            "TRAINBED_CAMPAIGN": "" if note.campaign is None else str(note.campaign.folder),
            "TRAINBED_STATE": self._state(standing, exit_code),
            "TRAINBED_EXIT_CODE": str(1 if exit_code is None else exit_code),
            "TRAINBED_LOG": "" if note.detached is None else note.detached.log,
            **{name: str(len(runs)) for name, runs in zip(RUNS, counts, strict=False)},
        }

    def _standing(self, note: NoteWriter) -> Standing | None:
        """How far the campaign came; None if there is none, or if that can't be read."""
        try:
            return None if note.campaign is None else note.campaign.standing()
        except UserError as error:
            self._screen.line(f"The hook is not told how far the campaign came: {error}", "yellow")
            return None

    def _state(self, standing: Standing | None, exit_code: int | None) -> str:
        if self._interrupts.received and exit_code == self._interrupts.exit_status:
            return "interrupted"
        if standing is None or exit_code not in (0, 1) or standing.failed:
            return "failed"
        return "unfinished" if standing.missing else "complete"

    def _run(self, hook: str, variables: dict[str, str]) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE} | variables
        seen = len(self._interrupts.received)
        # Its own group: it is told of a signal by this program, whoever else got it.
        process = subprocess.Popen(
            ["/bin/sh", "-c", hook], env=environment, stdin=subprocess.DEVNULL, process_group=0
        )
        told = signal.SIGTERM
        while True:
            try:
                code = process.wait(LOOK_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                if len(self._interrupts.received) > seen:
                    seen = len(self._interrupts.received)
                    os.killpg(process.pid, told)
                    told = signal.SIGKILL
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            self._screen.line(f"The hook failed ({how}); this changes no result and no exit code.", "yellow")
