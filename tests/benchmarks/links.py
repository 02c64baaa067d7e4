"""Where workers meet: on the loopback, or over a link of a limited rate between two network namespaces."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RATE: Final = "1gbit"
TOOLS: Final = ("ip", "tc")
NAMESPACES: Final = Path("/run/netns")
CLONE_NEWNET: Final = 0x40000000  # sched.h


@dataclass(frozen=True)
class Place:
    """Where a worker is in the network."""

    address: str
    interface: str
    namespace: Path | None = None

    def enter(self) -> None:
        """Go there, with all threads and processes that this process starts from now on.

        Raises:
            OSError: the namespace can't be entered.
        """
        os.environ["GLOO_SOCKET_IFNAME"] = self.interface
        if self.namespace is None:
            return
        descriptor = os.open(self.namespace, os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.setns(descriptor, CLONE_NEWNET)
        number = ctypes.get_errno()
        os.close(descriptor)
        if failed:
            raise OSError(number, os.strerror(number), str(self.namespace))


LOOPBACK: Final = Place("127.0.0.1", "lo")


def why_no_limit() -> str | None:
    """Why a link can't be limited on this machine, in a sentence; None: it can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"The link of {RATE} is left out: there is no {' and no '.join(missing)} (package iproute2)."
    if os.geteuid() != 0:
        return f"The link of {RATE} is left out: only root can make one; repeat the benchmark as root."
    return None


@contextmanager
def limited_link(rate: str = RATE) -> Iterator[tuple[Place, Place]]:
    """Two places that are joined by a link of `rate` in each direction, limited as the testbed's links are.

    Raises:
        CalledProcessError: it can't be made; what `ip` or `tc` said is on standard error.
    """
    names = [f"trainbed-bench-{os.getpid()}-{number}" for number in (0, 1)]
    places = tuple(
        Place(f"198.18.255.{number + 1}", f"link{number}", NAMESPACES / name)
        for number, name in enumerate(names)
    )
    try:
        for name in names:
            _call("ip", "netns", "add", name)
        first, second = (place.interface for place in places)
        _call(
            *("ip", "link", "add", first, "netns", names[0], "type", "veth"),
            *("peer", "name", second, "netns", names[1]),
        )
        for name, place in zip(names, places, strict=True):
            _call("ip", "-n", name, "address", "add", f"{place.address}/30", "dev", place.interface)
            for interface in ("lo", place.interface):
                _call("ip", "-n", name, "link", "set", interface, "up")
            limit = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
            _call("tc", "-n", name, "qdisc", "add", "dev", place.interface, *limit)
        yield places[0], places[1]
    finally:
        for name in names:
            if (NAMESPACES / name).exists():
                _call("ip", "netns", "delete", name)


def _call(*command: str) -> None:
    subprocess.run(command, check=True)
