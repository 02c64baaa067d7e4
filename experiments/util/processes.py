"""Ending what a playbook started on this machine, all of it.

Ansible puts each of its own worker processes into a session of its own, so that ending its process group is
not enough when its main process does not get the time to end them: what is left is found by its arguments.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

GRACE_S = 10.0  # Ansible ends its workers within a second or two of a SIGTERM
PROC = Path("/proc")


def end_group(leader: int, mark: str, grace: float = GRACE_S) -> None:
    """Ends the process group of `leader` and every process with the argument `mark`, children included."""
    family = _family(processes_with(mark) | {leader})
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(leader, number)
        told = {pid for pid in family if _signal(pid, number)}
        _wait_gone({leader, *told}, grace)
    # What was started while the rest was being ended.
    end_marked(mark, grace)


def end_marked(mark: str, grace: float = GRACE_S) -> bool:
    """Ends every process that has the argument `mark`, with its children; whether there was one."""
    family = _family(processes_with(mark))
    if not family:
        return False
    for number in (signal.SIGTERM, signal.SIGKILL):
        told = {pid for pid in family if _signal(pid, number)}
        _wait_gone(told, grace)
        family = {pid for pid in family if _alive(pid)}
    return True


def processes_with(mark: str) -> set[int]:
    """The processes that have `mark` as one of their arguments; this one apart."""
    return {pid for pid, arguments in _arguments() if mark.encode() in arguments}


def marks_in_use() -> set[str]:
    """All arguments of all processes, this one's apart: to look for many marks at once."""
    return {os.fsdecode(each) for _, arguments in _arguments() for each in arguments}


def _arguments() -> Iterator[tuple[int, list[bytes]]]:
    for folder in PROC.iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended meanwhile
        yield int(folder.name), arguments


def self_identity() -> dict[str, str | int]:
    """This process, told apart from every other one that ever had or will have its number."""
    return {"pid": os.getpid(), "start": _start(os.getpid()), "boot": _boot()}


def is_alive(identity: object) -> bool:
    """Whether the process that `self_identity` described there is still running on this machine."""
    if not isinstance(identity, dict) or not isinstance(identity.get("pid"), int):
        return False
    pid = identity["pid"]
    return _alive(pid) and identity == {"pid": pid, "start": _start(pid), "boot": _boot()}


def has_process(pid: int) -> bool:
    """Whether there is a process of that number."""
    return _alive(pid)


def _boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _start(pid: int) -> str:
    """When a process started, in clock ticks since boot; "" where there is none."""
    try:
        return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _family(pids: set[int]) -> set[int]:
    """`pids` and everything that descends from them."""
    parents = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            state = _state(int(folder.name))
            if state is not None:
                parents[int(folder.name)] = state[1]
    family = set(pids)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        grown = bool(more)
        family |= more
    return family - {os.getpid()}


def _state(pid: int) -> tuple[str, int] | None:
    """State letter and parent of a process."""
    try:
        # The command's name may hold spaces and brackets: what follows its last bracket is fixed.
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])


def _alive(pid: int) -> bool:
    state = _state(pid)
    return state is not None and state[0] not in "ZX"


def _wait_gone(pids: Iterable[int], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(_alive(pid) for pid in pids):
        time.sleep(0.05)


def _signal(pid: int, number: signal.Signals) -> bool:
    """Whether there was such a process, and it could be told."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # On a node that is this machine, what `become` starts is root's. Ansible above it is ended all the
        # same, and what root's processes do for a run is ended by stop.yml.
        return False
    return True


def _signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # the latter: only processes of root are left in it
        return
