"""Which network interface of this node has an address, or leads to one."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import psutil

from training.errors import LaunchError


def address_towards(host: str, port: int) -> str:
    """This node's address on the network that `host` is reached over; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])


def free_port() -> int:
    """A TCP port on loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def interface_of(address: str, interfaces: Mapping[str, list[str]]) -> str:
    """Name of the interface that has an address.

    Raises:
        LaunchError: none has it.
    """
    for name, addresses in interfaces.items():
        if address in addresses:
            return name
    raise LaunchError(f"No network interface of {socket.gethostname()} has the address {address}.")


def interface_towards_master() -> str:
    """Name of the interface that leads to `MASTER_ADDR`, where the ranks meet.

    Raises:
        LaunchError: no interface has the address that leads there.
    """
    interfaces = {name: [each.address for each in found] for name, found in psutil.net_if_addrs().items()}
    return interface_of(
        address_towards(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), interfaces
    )
