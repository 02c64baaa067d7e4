"""The machines' processes, found by the path of their disk: a file would say what a kill makes untrue."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import psutil

from trainbed_machines.errors import MachinesError


def of(disk: Path) -> list[psutil.Process]:
    """The processes that run the machine with this disk; [] if it is off."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        # The threads of a user-mode kernel are processes that share its command line.
        if any(word in (f"ubd0={disk}",) or word.startswith(f"file={disk},") for word in words):
            found.append(process)
    return found


def start(command: list[str], console: Path, memory: Path) -> None:
    """Start a machine that outlives this command; what its console says is kept.

    Args:
        command: as `kinds.command` makes it.
        console: the file for its console.
        memory: folder for the file that is a user-mode machine's memory.

    Raises:
        MachinesError: it ended at once.
    """
    with console.open("ab") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(memory)},
        )
    time.sleep(0.5)
    if process.poll() is not None:
        lines = console.read_text(encoding="utf-8", errors="replace").splitlines()
        raise MachinesError(
            f"{console.parent.name} ended at once: {lines[-1] if lines else 'it said nothing'} ({console})."
        )


def kill(disk: Path) -> bool:
    """Cut a machine's power; True if it was on."""
    found = of(disk)
    # Its first process starts new ones until it is gone.
    for _ in range(100):
        running = of(disk)
        if not running:
            return bool(found)
        for process in running:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(running, timeout=1)
    raise MachinesError(f"The processes of the machine with {disk} do not end.")
