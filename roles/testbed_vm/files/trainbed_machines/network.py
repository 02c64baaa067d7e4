"""The machines' networks on this machine: a bridge for the cluster, and a way out for those that have one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from trainbed_machines.errors import MachinesError
from trainbed_machines.image import last_line
from trainbed_machines.plan import Request

#: Before the testbed's name, on whatever of this machine belongs to it.
MARK = "trainbed:"


def bridge(request: Request) -> str:
    """Name of the cluster's bridge, after its network: short enough, and no other testbed's."""
    first, second, third = request.prefix.split(".")
    return f"tb-{int(first) % 10}{second}-{third}"


def tap(request: Request, node: str) -> str:
    """Name of a machine's interface on the cluster's network."""
    return f"{bridge(request)}-{request.addresses[node].rsplit('.', 1)[1]}"


def way_out(request: Request) -> str:
    """Name of the master's interface to the outside."""
    return f"{bridge(request)}-out"


def owner(request: Request) -> str | None:
    """Name of the testbed that these networks belong to; None if they are not there, or it is not known."""
    links = {link["ifname"]: link.get("ifalias", "") for link in ip("link", "show")}
    return links.get(bridge(request), "").removeprefix(MARK) or None


def check_owner(request: Request) -> None:
    """Check that no other testbed has these networks.

    Raises:
        MachinesError: one has.
    """
    if (name := owner(request)) not in (None, request.name):
        raise MachinesError(
            f"The network {request.prefix}.0/24 is the testbed {name}'s: choose another range with "
            f"TESTBED_PREFIX, or remove that one (make testbed-down TESTBED_KIND=vm TESTBED={name})."
        )


def bring_up(request: Request) -> bool:
    """Make the networks, or what is missing of them; True if anything was.

    Raises:
        MachinesError: a tool failed.
    """
    changed = False
    links = {link["ifname"] for link in ip("link", "show")}
    if bridge(request) not in links:
        ip("link", "add", bridge(request), "type", "bridge")
        ip("link", "set", bridge(request), "alias", f"{MARK}{request.name}")
        # The nodes' own network: it leads nowhere else.
        ip("address", "add", f"{request.prefix}.1/24", "dev", bridge(request))
        changed = True
    ip("link", "set", bridge(request), "up")
    for node in request.addresses:
        if tap(request, node) not in links:
            ip("tuntap", "add", tap(request, node), "mode", "tap")
            changed = True
        ip("link", "set", tap(request, node), "master", bridge(request), "up")
        changed = limit(tap(request, node), request.link_rate) or changed
    if way_out(request) not in links:
        ip("tuntap", "add", way_out(request), "mode", "tap")
        ip("address", "add", f"{request.outside_prefix}.1/24", "dev", way_out(request))
        changed = True
    ip("link", "set", way_out(request), "up")
    forward = Path("/proc/sys/net/ipv4/ip_forward")
    if forward.read_text(encoding="ascii").strip() != "1":
        forward.write_text("1\n", encoding="ascii")
        changed = True
    for rule in rules(request):
        if iptables("--check", rule) != 0:
            if iptables("--insert", rule) != 0:
                raise MachinesError(
                    f"iptables refuses a rule ({' '.join(rule)}): is another firewall in charge?"
                )
            changed = True
    return changed


def take_down(request: Request) -> bool:
    """Remove the networks, unless they are another testbed's; True if there was anything."""
    if owner(request) not in (None, request.name):
        return False
    changed = False
    for rule in rules(request):
        while iptables("--check", rule) == 0:
            iptables("--delete", rule)
            changed = True
    links = {link["ifname"] for link in ip("link", "show")}
    for name in [*(tap(request, node) for node in request.addresses), way_out(request), bridge(request)]:
        if name in links:
            ip("link", "delete", name)
            changed = True
    return changed


def rules(request: Request) -> list[list[str]]:
    """Rules of iptables, each with its chain first: the master's way out, and frames among the nodes.

    Where an engine had bridges pass through iptables, what is not accepted there is dropped.
    """
    mark = ["-m", "comment", "--comment", f"{MARK}{request.name}"]
    inside, outside = bridge(request), way_out(request)
    return [
        [
            "POSTROUTING",
            "-t",
            "nat",
            "-s",
            f"{request.outside_prefix}.0/24",
            "!",
            "-o",
            outside,
            *mark,
            "-j",
            "MASQUERADE",
        ],
        ["FORWARD", "-i", outside, "!", "-o", inside, *mark, "-j", "ACCEPT"],
        [
            "FORWARD",
            "-o",
            outside,
            "-m",
            "conntrack",
            "--ctstate",
            "RELATED,ESTABLISHED",
            *mark,
            "-j",
            "ACCEPT",
        ],
        ["FORWARD", "-i", inside, "-o", inside, *mark, "-j", "ACCEPT"],
    ]


def limit(interface: str, rate: str) -> bool:
    """Limit what a machine receives; True if that changed.

    Whatever one machine sends, another receives, so this bounds every link of the cluster.
    """
    found = subprocess.run(
        ["tc", "qdisc", "show", "dev", interface], capture_output=True, text=True, check=True
    )
    if rate:
        command = [
            "replace",
            "dev",
            interface,
            "root",
            "tbf",
            "rate",
            rate,
            "burst",
            "256kb",
            "latency",
            "50ms",
        ]
    elif " tbf " in found.stdout:
        command = ["delete", "dev", interface, "root"]
    else:
        return False
    run(["tc", "qdisc", *command])
    after = subprocess.run(
        ["tc", "qdisc", "show", "dev", interface], capture_output=True, text=True, check=True
    )
    return found.stdout.split(" rate ")[1:] != after.stdout.split(" rate ")[1:]


def ip(*arguments: str) -> list[dict[str, Any]]:
    """What `ip` prints as JSON; nothing if it changes something."""
    said = run(["ip", "-json", *arguments])
    return list(json.loads(said)) if said.strip() else []


def iptables(action: str, rule: list[str]) -> int:
    """Exit code of iptables for one rule."""
    chain, *rest = rule
    table = rest[: rest.index("-t") + 2] if "-t" in rest else []
    rest = [word for word in rest if word not in ("-t", "nat")] if table else rest
    return subprocess.run(
        ["iptables", "--wait", *table, action, chain, *rest], capture_output=True, check=False
    ).returncode


def run(command: list[str]) -> str:
    """What a command prints.

    Raises:
        MachinesError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachinesError(f"'{' '.join(command)}' failed: {last_line(done.stderr)}")
    return done.stdout
