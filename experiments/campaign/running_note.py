"""The note of a command that runs a matrix. It exists while the command does, so that others can find it.

A command removes its note when it ends. A killed command can't; its note names a process that is gone.
A detached command's note stays, so that `watch` can tell how it ended, until the next command starts.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pydantic import AwareDatetime, Field, ValidationError

from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.util.errors import UserError
from experiments.util.files import utc_now
from experiments.util.models import FrozenModel
from experiments.util.processes import is_alive, self_identity
from experiments.util.screen import Screen
from training.spec import explain

PREFIX: Final = ".running-"  # then the controller's process id; in the folder of all results


class Detached(FrozenModel):
    """How a command is kept running without a terminal."""

    keeper: str  # such as `the systemd unit NAME`
    log: str  # the path of its output
    stop: str  # the shell command that ends it


class CommandNote(FrozenModel):
    """What a running command says about itself."""

    matrix: str
    started: AwareDatetime
    controller: dict[str, int | str]  # its `processes.self_identity`
    campaign: str | None = None  # None: not created yet
    selected: list[str] = Field(default_factory=list)  # the runs that were requested and can be made
    not_runnable: list[str] = Field(default_factory=list)  # the requested runs that can't be made
    todo: list[str] = Field(default_factory=list)  # the unfinished ones, in order, with their warm-ups
    doing: str = ""  # what its screen says
    detached: Detached | None = None  # None: its terminal shows what it says
    exit_code: int | None = None  # of a detached command that has ended

    @property
    def alive(self) -> bool:
        """Whether the command is still running, on this machine; its hook does not count."""
        return self.exit_code is None and is_alive(dict(self.controller))


class NoteWriter:
    """Maintains the note of this process for as long as the context is open."""

    def __init__(self, results: Path, matrix: str, screen: Screen, detached: Detached | None = None) -> None:
        self.matrix = matrix
        self.campaign: Campaign | None = None  # as soon as there is one
        self._path = results / f"{PREFIX}{os.getpid()}.json"
        self._screen = screen
        self._note = CommandNote(
            matrix=matrix, started=utc_now(), controller=self_identity(), detached=detached
        )
        self._warned = False

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._forget_dead()
        self._write()
        self._screen.listener = self._tell
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._screen.listener = None
        if self._note.detached is None:
            self._path.unlink(missing_ok=True)

    @property
    def detached(self) -> Detached | None:
        """How the command is kept running; None if it has a terminal."""
        return self._note.detached

    def ends(self, exit_code: int) -> None:
        """Notes, after a detached command's last word, how it ended."""
        if self._note.detached is not None:
            self._note = self._note.model_copy(update={"exit_code": exit_code, "doing": ""})
            self._write()

    def begins(self, campaign: str, selected: list[PlannedRun], todo: list[PlannedRun]) -> None:
        """Notes, when a campaign starts or resumes, which runs were requested and which are left to do."""
        self._note = self._note.model_copy(
            update={
                "campaign": campaign,
                "selected": [run.run_id for run in selected if run.cannot_run is None],
                "not_runnable": [run.run_id for run in selected if run.cannot_run is not None],
                "todo": [run.run_id for run in todo],
                "doing": "",
            }
        )
        self._write()

    def _forget_dead(self) -> None:
        for path in self._path.parent.glob(f"{PREFIX}*.json"):
            try:
                note = read_note(path)
            except UserError as error:
                self._screen.line(f"Skipped: {error}", "yellow")
                continue
            if note is not None and not note.alive:
                path.unlink(missing_ok=True)
                path.with_suffix(".new").unlink(missing_ok=True)

    def _tell(self, doing: str) -> None:
        if doing == self._note.doing:
            return
        self._note = self._note.model_copy(update={"doing": doing})
        self._write()

    def _write(self) -> None:
        # Not synced to disk as other files are: after a power cut there is no running command to find.
        beside = self._path.with_suffix(".new")
        try:
            beside.write_text(self._note.model_dump_json(indent=2) + "\n", encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            # Only `watch` needs the note: failing to write it must not end a run.
            beside.unlink(missing_ok=True)
            if not self._warned:
                self._warned = True
                self._screen.line(f"`watch` will not see what happens: {self._path}: {error}.", "yellow")


def read_notes(results: Path) -> list[tuple[Path, CommandNote]]:
    """The notes of all commands, alive or dead, newest first."""
    found = [(path, note) for path in results.glob(f"{PREFIX}*.json") if (note := read_note(path))]
    return sorted(found, key=lambda each: each[1].started, reverse=True)


def read_note(path: Path) -> CommandNote | None:
    """The note in the file `path`; None if it was removed.

    Raises:
        UserError: it is not valid.
    """
    try:
        return CommandNote.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise UserError(explain(error, str(path)) + " Remove it; this affects no run.") from error
