"""The network interface that a node's ranks take, and how fast its link is."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Final

UNKNOWN: Final = "unknown"
TBF: Final = re.compile(r"^qdisc tbf .*\brate (\S+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Link:
    """The way from a node to another node of its cluster."""

    interface: str
    address: str  # this node's, on that interface
    rate: str  # in words

    def __str__(self) -> str:
        """For a person: `eth1 (10.0.0.11), 10000 Mbit/s`."""
        return f"{self.interface} ({self.address}), {self.rate}"


def link_of(route: str, speed: str, queueing: str) -> Link:
    """The link that a node's answers describe.

    Args:
        route: of `ip -json route get ADDRESS`.
        speed: the content of the interface's /sys/class/net/.../speed in Mbit/s, empty if it can't be read.
        queueing: of `tc qdisc show dev INTERFACE`.
    """
    (way,) = json.loads(route)
    return Link(interface=way["dev"], address=way["prefsrc"], rate=rate_of(speed, queueing))


def rate_of(speed: str, queueing: str) -> str:
    """A link's rate: the limit that is set for it, else what its driver says."""
    if limit := TBF.search(queueing):
        return f"limited to {limit[1]}"
    # -1 or nothing from drivers that don't know, such as many virtual machines' ones.
    return f"{speed.strip()} Mbit/s" if speed.strip().isdigit() else UNKNOWN
