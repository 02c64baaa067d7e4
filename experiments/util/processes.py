"""Ending what a playbook started on this machine, all of it.

Ansible puts each of its own worker processes into a session of its own, so that ending its process group is
not enough when its main process does not get the time to end them: what remains is found by its arguments.
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
        signalled = {process for process in family if _signal(process, number)}
        _wait_gone({process for process in family if process.pid == leader} | signalled, grace)
    # What was started while the rest was being ended.
    end_marked(mark, grace)


def end_marked(mark: str, grace: float = GRACE_S) -> bool:
    """Ends every process that has the argument `mark`, with its children; whether there was one."""
    family = _family(processes_with(mark))
    if not family:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        _wait_gone({process for process in family if _signal(process, number)}, grace)
        family = {process for process in family if _alive(process)}
    return True


def processes_with(mark: str) -> set[int]:
    """The processes that have `mark` as one of their arguments; this one apart."""
    return {pid for pid, arguments in _arguments().items() if mark in arguments}


def marks_in_use() -> set[str]:
    """All arguments of all processes, this one's apart: to look for many marks at once."""
    return {argument for arguments in _arguments().values() for argument in arguments}


def _arguments() -> dict[int, list[str]]:
    # One that ends meanwhile has none.
    return {
        process.pid: process.info["cmdline"] or []
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid()
    }


def self_identity() -> dict[str, str | int]:
    """This process, told apart from every other one that ever had or will have its number."""
    return _identity(os.getpid())


def is_alive(identity: object) -> bool:
    """Whether the process that `self_identity` described there is still running on this machine."""
    if not isinstance(identity, dict) or not isinstance(identity.get("pid"), int):
        return False
    return has_process(identity["pid"]) and identity == _identity(identity["pid"])


def has_process(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        return _alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def _identity(pid: int) -> dict[str, str | int]:
    """A process's number, when it started in clock ticks since boot ("" where there is none), and the boot.

    psutil's `create_time` moves when the machine's clock is set, and so can't name a process for long.
    """
    try:
        start = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        start = ""
    return {"pid": pid, "start": start, "boot": BOOT_ID.read_text().strip()}


def _family(pids: Iterable[int]) -> set[psutil.Process]:
    """`pids` and everything that descends from them; this process apart."""
    family: set[psutil.Process] = set()
    for pid in pids:
        try:
            process = psutil.Process(pid)
            family |= {process, *process.children(recursive=True)}
        except psutil.NoSuchProcess:
            continue
    return {process for process in family if process.pid != os.getpid()}


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _wait_gone(processes: Iterable[psutil.Process], seconds: float) -> None:
    # Not psutil.wait_procs: it would reap this process's own children, whose exit status others wait for.
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(_alive, processes)):
        time.sleep(0.05)


def _signal(process: psutil.Process, number: signal.Signals) -> bool:
    """Whether there was such a process, and it could be signalled."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        # On a node that is this machine, what `become` starts is root's. Ansible above it is ended all the
        # same, and what root's processes do for a run is ended by stop.yml.
        return False
    return True


def _signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # the latter: only processes of root are left in it
        return
