"""Lookup plugin: the controller's identity, and whether a holder of the lock can still be alive."""

from __future__ import annotations

import getpass
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
  - With the term C(self), returns a dict of host, boot, user, pid and started that names one process here.
  - With the term C(alive) and such a dict as second term, returns whether that process can still be running.
    A process of another controller is assumed to be alive.
options:
  _terms:
    description: C(self) and a process id (0 for the running ansible-playbook), or C(alive) and a dict.
    required: true
"""


def boot_id() -> str:
    """Identifier of this boot of the machine: process ids mean nothing across boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


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
                    "boot": boot_id(),
                    "user": getpass.getuser(),
                    "pid": pid,
                    "started": start_time(pid),
                }
            ]
        holder = terms[1]
        if holder.get("host") != socket.gethostname():
            return [True]
        same_boot = holder.get("boot") == boot_id()
        return [same_boot and start_time(int(holder["pid"])) == holder.get("started")]
