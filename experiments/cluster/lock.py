"""The cluster's one lock: provisioning, resetting and running exclude one another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from experiments.cluster.playbooks import Playbooks, failure_message, last_lines
from experiments.util.errors import UserError
from experiments.util.interrupts import Interrupted

TAKING: Final = "taking the cluster's lock"
TAKEN_OVER: Final = re.compile(
    r"Taking over the cluster's lock.*?\.(?=\s|$)"
)  # as roles/cluster_lock words it


@contextmanager
def cluster_lock(playbooks: Playbooks, verb: str, folder: Path, *, take_over: bool = False) -> Iterator[None]:
    """Holds the lock while the context is open; logs go to `folder`.

    `take_over`: take it even from a holder that may be alive.

    Raises:
        UserError: somebody else holds it, or the master can't be reached.
        Interrupted: a signal came meanwhile; the lock is not held.
    """
    screen = playbooks.screen
    screen.status(TAKING, now=True)
    log = folder / "lock.log"
    # Deferred: if the playbook were ended midway, it would be unknown whether it had taken the lock.
    variables = _variables("held", verb) | ({"cluster_lock_break": True} if take_over else {})
    outcome = playbooks.play("lock", log, variables, deferred=True)
    if not outcome.good:
        screen.clear_status()
        shown = "\n".join(f"  {line}" for line in last_lines(log))
        message = failure_message(log) or "playbooks/lock.yml failed; its last lines are above"
        hint = " (With this command: --break-lock.)" if "cluster_lock_break" in message else ""
        raise UserError(f"{shown}\nThe cluster's lock could not be taken: {message}{hint}")
    taken_over = TAKEN_OVER.search(" ".join(last_lines(log, count=1000)))
    if taken_over:
        screen.line(" ".join(taken_over[0].split()), style="yellow")
    try:
        playbooks.interrupts.check()
        yield
    finally:
        _free(playbooks, verb, log)


def _free(playbooks: Playbooks, verb: str, log: Path) -> None:
    try:
        good = playbooks.play("lock", log, _variables("free", verb), deferred=True).good
    except Interrupted:
        good = False
    playbooks.screen.clear_status()
    if not good:
        playbooks.screen.line(
            "The cluster's lock could not be released; the next command from this machine takes it over.",
            style="yellow",
        )


def _variables(state: str, verb: str) -> dict[str, object]:
    return {"cluster_lock_state": state, "cluster_lock_verb": verb, "cluster_lock_pid": os.getpid()}
