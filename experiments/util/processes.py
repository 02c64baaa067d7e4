"""Ending everything that a playbook started on this machine.

Ansible puts each worker process into its own session, so ending the main process's group misses the workers
that it had no time to end. They are found by their arguments.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

GRACE_S = 10.0  # Ansible ends its workers within a second or two of a SIGTERM
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def end_group(leader: int, mark: str, grace: float = GRACE_S) -> None:
    """Ends the process group of `leader` and every process with the argument `mark`, children included."""
    family = _family(processes_with(mark) | {leader})
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(leader, number)
        signalled = [process for process in family if _signal(process, number)]
        _wait_gone([process for process in family if process.pid == leader] + signalled, grace)
    # Processes started in the meantime.
    end_marked(mark, grace)


def end_marked(mark: str, grace: float = GRACE_S) -> bool:
    """Ends every process with the argument `mark`, children included; returns whether there was one."""
    family = _family(processes_with(mark))
    if not family:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        _wait_gone([process for process in family if _signal(process, number)], grace)
        family = [process for process in family if _alive(process)]
    return True


def processes_with(mark: str) -> set[int]:
    """The processes, except this one, that have `mark` as one of their arguments."""
    return {pid for pid, arguments in _arguments().items() if mark in arguments}


def marks_in_use() -> set[str]:
    """All arguments of all processes except this one, to look for many marks at once."""
    return {argument for arguments in _arguments().values() for argument in arguments}


def _arguments() -> dict[int, list[str]]:
    # A process that exits meanwhile has none.
    return {
        process.pid: process.info["cmdline"] or []
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid()
    }


def self_identity() -> dict[str, str | int]:
    """Identifies this process, even among others that had or will have its number."""
    return _identity(os.getpid())


def this_boot() -> str:
    """What tells this boot of this machine from every other."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def is_alive(identity: object) -> bool:
    """Whether the process that `self_identity` described is still running on this machine."""
    if not isinstance(identity, dict) or not isinstance(identity.get("pid"), int):
        return False
    return has_process(identity["pid"]) and identity == _identity(identity["pid"])


def has_process(pid: int) -> bool:
    """Whether a process with that number is running."""
    try:
        return _alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def _identity(pid: int) -> dict[str, str | int]:
    """A process's number, its start in clock ticks since boot ("" if it is gone), and the id of the boot.

    psutil's `create_time` shifts when the machine's clock is set, so it can't identify a process.
    """
    try:
        start = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        start = ""
    return {"pid": pid, "start": start, "boot": this_boot()}


def _family(pids: Iterable[int]) -> list[psutil.Process]:
    """`pids` and all their descendants, without this process: each parent before its children.

    A shell whose child is ended first goes on to its next command.
    """
    family: set[psutil.Process] = set()
    for pid in pids:
        try:
            process = psutil.Process(pid)
            family |= {process, *process.children(recursive=True)}
        except psutil.NoSuchProcess:
            continue
    others = (process for process in family if process.pid != os.getpid())
    return sorted(others, key=lambda process: (process.create_time(), process.pid))


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _wait_gone(processes: Iterable[psutil.Process], seconds: float) -> None:
    # Not psutil.wait_procs: it would reap this process's own children, whose exit code other code awaits.
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(_alive, processes)):
        time.sleep(0.05)


def _signal(process: psutil.Process, number: signal.Signals) -> bool:
    """Signals `process`; returns whether it existed and could be signalled."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        # Where this machine is a node, `become` starts processes as root. The Ansible process above them is
        # ended all the same, and stop.yml ends what root's processes do for a run.
        return False
    return True


def _signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # the latter: only root's processes are left in it
        return
