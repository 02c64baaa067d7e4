"""Ending what still runs on the nodes after a command that was interrupted."""

from __future__ import annotations

from pathlib import Path

from experiments.cluster.playbooks import Playbooks, failure_message
from experiments.util.interrupts import Interrupted


def end_runs(playbooks: Playbooks, log: Path) -> str | None:
    """Ends whatever runs on the nodes; returns what went wrong, which is on the screen, too."""
    screen = playbooks.screen
    screen.status("ending what still runs on the nodes", now=True)
    try:
        outcome = playbooks.play("stop", log, deferred=True)
        fault = None if outcome.good else failure_message(log) or f"its output is in {log.name}"
    except Interrupted:
        fault = "it was given up after a third signal"
    screen.clear_status()
    if fault is not None:
        screen.line(
            f"playbooks/stop.yml failed ({fault}): something may still run on the nodes. "
            "The next run ends it first; to end it by hand: ansible-playbook playbooks/stop.yml.",
            "bold red",
        )
    return fault
