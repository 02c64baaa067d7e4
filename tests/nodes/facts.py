"""Facts that several tests need about a node: its declarations, and answers that are asked for only once."""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import time

from experiments.cluster.declarations import OnNode, Port
from tests.nodes import cluster
from tests.nodes.links import Link, link_of
from tests.stacks import declared

#: How long after its boot a node's services may need until they run and listen.
BOOT_S = 180


@dataclasses.dataclass(frozen=True)
class Unit:
    """The state of a systemd unit."""

    is_running: bool
    is_enabled: bool


@functools.cache
def units(name: str) -> dict[str, Unit]:
    """The units that systemd has loaded, under each of their names, once the node has booted."""
    cluster.node(name).run(f"timeout {BOOT_S} systemctl is-system-running --wait")  # fails if degraded
    wanted = ("Names", "ActiveState", "UnitFileState")
    shown = cluster.node(name).check_output(f"systemctl show '*' --property={','.join(wanted)}")
    found = {}
    for block in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if line)
        unit = Unit(values["ActiveState"] == "active", values.get("UnitFileState") == "enabled")
        found.update(dict.fromkeys(values["Names"].split(), unit))
    return found


def unit(name: str, wanted: str) -> Unit:
    """One unit of a node; `.service` may be omitted."""
    full = wanted if "." in wanted else f"{wanted}.service"
    return units(name).get(full, Unit(is_running=False, is_enabled=False))


@functools.cache
def _listeners(name: str) -> list[tuple[str, str]]:
    rows = cluster.node(name).check_output("ss --listening --tcp --numeric --no-header").splitlines()
    return [(address, port) for row in rows for address, port in [row.split()[3].rsplit(":", 1)]]


def listening(name: str, port: int) -> list[str]:
    """Addresses on which something on a node listens at this TCP port.

    If nothing does and the node has just booted, this waits for its services.
    """
    while str(port) not in {number for _, number in _listeners(name)}:
        if int(cluster.node(name).check_output("ps --no-headers --format etimes --pid 1")) > BOOT_S:
            break
        time.sleep(2)
        _listeners.cache_clear()
    return [
        address.strip("[]").removeprefix("::ffff:")
        for address, number in _listeners(name)
        if number == str(port)
    ]


@functools.cache
def usable_cores(name: str) -> list[int]:
    """Cores that a login on this node may use."""
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    return list(ast.literal_eval(cluster.node(name).check_output(f"python3 -c '{program}'")))


def cores_named(cpus: str) -> list[int]:
    """The cores in a list such as 0,2-3, the format of Docker's --cpuset-cpus."""
    ends = [each.partition("-") for each in cpus.split(",")]
    return sorted(core for first, _, last in ends for core in range(int(first), int(last or first) + 1))


def on_node(name: str, stack: str) -> list[OnNode]:
    """A stack's declarations for a node: one for each of the node's groups."""
    by_group = {"master": declared()[stack].master, "workers": declared()[stack].workers}
    return [found for group, found in by_group.items() if name in cluster.groups()[group]]


def ports(name: str, stack: str) -> dict[int, Port]:
    """TCP ports that a stack declares for a node, by the number that the inventory gives them."""
    variables = cluster.variables(name)
    found = {}
    for port in (port for each in on_node(name, stack) for port in each.ports):
        usual = [number for moved, number in port.moved_by.items() if is_true(variables.get(moved))]
        found[int(variables.get(port.port) or [*usual, port.default][0])] = port
    return found


@functools.cache
def link(name: str) -> Link:
    """The link that ranks on this node take to the cluster's other nodes."""
    node, facts = cluster.node(name), cluster.groups()["cluster"]
    other = next((each for each in facts if each != name), name)
    route = node.check_output("ip -json route get %s", facts[other]["cluster_address"])
    interface = json.loads(route)[0]["dev"]
    speed = node.run("cat %s", f"/sys/class/net/{interface}/speed").stdout
    return link_of(route, speed, node.check_output("tc qdisc show dev %s", interface))


def is_true(value: object) -> bool:
    """Whether a variable is true by the rules of Ansible's filter `bool`."""
    return str(value).lower() in ("true", "yes", "on", "1")
