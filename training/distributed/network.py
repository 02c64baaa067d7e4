"""Which network interface the ranks talk over."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from training.session import LaunchError


def address_towards(host: str, port: int) -> str:
    """This node's address on the network that `host` is reached over; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])


def interface_of(address: str, interfaces: Mapping[str, list[str]]) -> str:
    """Name of the interface that has an address.

    Raises:
        LaunchError: none has it.
    """
    for name, addresses in interfaces.items():
        if address in addresses:
            return name
    raise LaunchError(f"No network interface of {socket.gethostname()} has the address {address}.")


def choose_interface() -> str:
    """Have NCCL and gloo use the interface that leads to `MASTER_ADDR`, and return its name.

    That address is the inventory's, so the gradients take the cluster's own network; NCCL by itself goes by
    the names of interfaces, and may take a bridge of the container engine's. What the environment says
    already is left alone.
    """
    if name := os.environ.get("NCCL_SOCKET_IFNAME"):
        return name
    import psutil

    interfaces = {
        name: [each.address for each in addresses] for name, addresses in psutil.net_if_addrs().items()
    }
    address = address_towards(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    name = interface_of(address, interfaces)
    os.environ |= {
        "NCCL_SOCKET_IFNAME": f"={name}",  # this one; without the sign all that begin with it
        "GLOO_SOCKET_IFNAME": name,
        "NCCL_IB_DISABLE": os.environ.get("NCCL_IB_DISABLE", "1"),
    }
    return f"={name}"
