"""What runs have on a node while they run, and what they must not leave there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Final

from testinfra.host import Host

from experiments.cluster.declarations import OnNode

#: Lists what runs have on a node: ranks (every launcher sets RANK), units, containers and processes.
FIND: Final = """
import json, os, re, subprocess, sys
user, patterns, labels = json.loads(sys.argv[1])
def ask(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return ""
ranks, found = {}, []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if os.stat(f"/proc/{pid}").st_uid != user:
            continue
        environment = open(f"/proc/{pid}/environ", "rb").read().split(b"\\0")
        command = open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\\0", b" ").decode(errors="replace")
    except OSError:
        continue
    for each in environment:
        if each.startswith(b"RANK="):
            ranks[pid] = int(each[5:])
    if any(re.search(pattern, command) for pattern in patterns):
        found.append(command.strip())
units = ask("systemctl", "list-units", "--output=json", "--state=running", "trainbed-run-*")
containers = [ask("docker", "ps", "--quiet", "--filter", f"label={label}").split() for label in labels]
others = [*found, *(unit["unit"] for unit in json.loads(units or "[]")), *sum(containers, [])]
print(json.dumps({"ranks": ranks, "others": others}))
"""


@dataclasses.dataclass(frozen=True)
class Running:
    """What runs have on one node."""

    ranks: dict[int, int]  # the number of each, by process id
    others: list[str]  # command lines, units, and ids of containers

    @property
    def all(self) -> list[str]:
        """All of it, in words."""
        return [*self.others, *(f"rank, process {pid}" for pid in self.ranks)]


def running(host: Host, uid: int, declared: Iterable[OnNode]) -> Running:
    """Look for what runs have on a node.

    Args:
        host: the node.
        uid: the training user's.
        declared: what the stacks declare for the node's group.
    """
    on_node = list(declared)
    processes = [pattern for each in on_node for pattern in each.processes]
    containers = [label for each in on_node for label in each.containers]
    done = host.run("python3 -c %s %s", FIND, json.dumps([uid, processes, containers]))
    if done.rc != 0:
        raise RuntimeError(f"what runs have on a node can't be listed: {done.stderr}")
    found = json.loads(done.stdout)
    return Running({int(pid): number for pid, number in found["ranks"].items()}, found["others"])
