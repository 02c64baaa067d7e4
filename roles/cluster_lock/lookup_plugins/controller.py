"""Lookup plugin: the controller's identity, and whether a holder of the lock can still be alive."""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: controller
short_description: Identity of the controller and liveness of its processes
description:
  - With the term C(self), returns a dict of host, machine, boot, user, pid, pid_namespace and started that
    names one process here.
  - With the term C(alive) and such a dict as second term, returns whether that process can still be running.
    A process of another controller is assumed to be alive, and so is one that may have been another's.
options:
  _terms:
    description: C(self) and a process id (0 for the running ansible-playbook), or C(alive) and a dict.
    required: true
"""

MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def boot_id() -> str:
    """Identifier of this boot of the machine: process ids mean nothing across boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def machine_id() -> str:
    """Identifier of this machine, which its host name is not; "" if it has none.

    A digest, because machine-id(5) asks not to show the id itself to others.
    """
    for path in MACHINE_IDS:
        try:
            found = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if found and found != "uninitialized":
            return hashlib.sha256(f"trainbed {found}".encode()).hexdigest()[:32]
    return ""


def pid_namespace() -> str:
    """Where this process's id counts: containers on one machine have the same boot, and ids of their own."""
    return str(Path("/proc/self/ns/pid").readlink())


def can_be_alive(holder: dict[str, Any]) -> bool:
    """Whether the process that a lock names can still be running.

    Locks of earlier versions name neither the machine nor the namespace.
    """
    if holder.get("boot") == boot_id():
        elsewhere = holder.get("pid_namespace", pid_namespace()) != pid_namespace()
        return elsewhere or start_time(int(holder["pid"])) == holder.get("started")
    # After a reboot of this machine it is gone. Copies of a machine may share its id, but hardly its name.
    here = (
        bool(machine_id())
        and holder.get("machine") == machine_id()
        and holder.get("host") == socket.gethostname()
    )
    return not here


def start_time(pid: int) -> str:
    """Start of a process in clock ticks since boot; "" if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rsplit(")", 1)[1].split()[19]


def parent(pid: int) -> int:
    """Process id of the parent of `pid`."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rsplit(")", 1)[1].split()[1])


def playbook_process() -> int:
    """The outermost ansible-playbook process above this one, which may be one of its forked workers."""
    found = pid = os.getpid()
    while pid > 1:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"ansible" in command:
            found = pid
        pid = parent(pid)
        if b"ansible" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            break
    return found


class LookupModule(LookupBase):  # type: ignore[misc] # Ansible has no types
    """See DOCUMENTATION."""

    def run(self, terms: list[Any], variables: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002
        """Answer `self` or `alive`."""
        if len(terms) != 2 or terms[0] not in ("self", "alive"):
            raise AnsibleLookupError("controller: needs 'self' and a process id, or 'alive' and a holder")
        if terms[0] == "self":
            pid = int(terms[1]) or playbook_process()
            return [
                {
                    "host": socket.gethostname(),
                    "machine": machine_id(),
                    "boot": boot_id(),
                    "user": getpass.getuser(),
                    "pid": pid,
                    "pid_namespace": pid_namespace(),
                    "started": start_time(pid),
                }
            ]
        return [can_be_alive(terms[1])]
