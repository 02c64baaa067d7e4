"""Starting a command that runs a matrix so that it goes on without this terminal."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.campaign.running_note import CommandNote, Detached, read_notes
from experiments.cluster.lock import TAKING
from experiments.util import become
from experiments.util.errors import UserError
from experiments.util.files import campaign_name, utc_now
from experiments.util.interrupts import Interrupts
from experiments.util.keepers import Keeper, find_keeper
from experiments.util.screen import Screen

OPTION: Final = "--as-detached"  # then a Detached, as JSON
LOOK_EVERY_S: Final = 0.2
AGENT: Final = (
    "SSH_AUTH_SOCK is set: an agent ends with its login, and a forwarded one with its connection. "
    "After that, only keys in files reach the nodes."
)


def run_detached(
    results: Path, name: str, matrix: str, words: Sequence[str], screen: Screen, interrupts: Interrupts
) -> int:
    """Starts this command again, detached, and waits until that one holds the cluster's lock.

    Args:
        results: the folder with the results of all matrices.
        name: the matrix's name.
        matrix: the matrix as the user named it.
        words: this command's arguments, `run` first.
        screen: where it says how to follow and to stop it, and what it said if it has ended.
        interrupts: a signal ends the waiting alone.

    Returns:
        The exit code: 0 if it goes on, its own if it has ended.

    Raises:
        UserError: it could not be started, or was killed at once.
    """
    stamp = campaign_name(utc_now())
    keeper = find_keeper(f"trainbed-{name}-{stamp}", os.geteuid())
    folder = results / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"detached-{stamp}.log"
    log.touch(exist_ok=False)
    start = _write_start(log, keeper, words)
    try:
        keeper.run([sys.executable, "-I", become.__file__, str(start)])
    except UserError:
        start.unlink()
        log.unlink()
        raise
    screen.line(f"{name} goes on without this terminal, as {keeper.what}.")
    screen.line(f"  follow it: make watch MATRIX={shlex.quote(matrix)}")
    screen.line(f"  stop it:   {keeper.stop}")
    screen.line(f"  its log:   {log}")
    remarks = (keeper.remark, AGENT if os.environ.get("SSH_AUTH_SOCK") else "")
    for remark in filter(None, remarks):
        screen.line(remark, "yellow")
    status = _wait_for_lock(results, log, keeper, screen, interrupts)
    if status is None:
        start.unlink(missing_ok=True)  # it was never read
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        raise UserError(f"{keeper.what} ended before it began with the matrix. {said or f'{log} is empty.'}")
    return status


def _write_start(log: Path, keeper: Keeper, words: Sequence[str]) -> Path:
    """Writes what `become` needs into a file that only this user can read; returns its path."""
    verb, *rest = words
    detached = Detached(keeper=keeper.what, log=str(log), stop=keeper.stop)
    content = {
        "greeting": f"This is {keeper.what}. It writes to {log}; Ctrl-C ends it in an orderly way.",
        "command": [sys.executable, "-m", "experiments", verb, OPTION, detached.model_dump_json(), *rest],
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "umask": _umask(),
        "log": str(log),
    }
    descriptor, path = tempfile.mkstemp(prefix=".detached-", suffix=".json", dir=log.parent)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        json.dump(content, file)  # in ASCII, which keeps variables that are not UTF-8
    return Path(path)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _wait_for_lock(
    results: Path, log: Path, keeper: Keeper, screen: Screen, interrupts: Interrupts
) -> int | None:
    """Returns the exit code for the terminal; None if the command ended without a note of its own."""
    while not interrupts.received:
        kept = keeper.keeps  # asked first: whatever has ended has left its note by then
        note = _note(results, log)
        if note is not None and not note.alive:
            note = _note(results, log)  # it may have ended in between
            if note is None or note.exit_code is None:
                return None
            screen.clear_status()
            screen.line(log.read_text(encoding="utf-8", errors="replace").rstrip())
            screen.line(f"It has ended, with exit code {note.exit_code}.")
            return note.exit_code
        if note is None and not kept:
            return None
        if note is not None and (note.campaign is not None or note.doing not in ("", TAKING)):
            screen.clear_status()
            screen.line("It holds the cluster's lock.")
            return 0
        screen.status("waiting until it holds the cluster's lock; Ctrl-C stops only this waiting")
        interrupts.wait(LOOK_EVERY_S)
    screen.clear_status()
    screen.line("Stopped waiting; the matrix keeps running.")
    return interrupts.exit_status


def _note(results: Path, log: Path) -> CommandNote | None:
    notes = (note for _, note in read_notes(results))
    return next((note for note in notes if note.detached and note.detached.log == str(log)), None)
