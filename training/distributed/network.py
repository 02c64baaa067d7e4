"""Which network interface the ranks talk over."""

from __future__ import annotations

import os

from training.util.network import interface_towards_master


def choose_interface() -> str:
    """Have NCCL and gloo use the interface that leads to `MASTER_ADDR`, and return its name.

    That address is the inventory's, so the gradients take the cluster's own network; NCCL by itself goes by
    the names of interfaces, and may take a bridge of the container engine's. What the environment says
    already is left alone.
    """
    if name := os.environ.get("NCCL_SOCKET_IFNAME"):
        return name
    name = interface_towards_master()
    os.environ |= {
        "NCCL_SOCKET_IFNAME": f"={name}",  # this one; without the sign all that begin with it
        "GLOO_SOCKET_IFNAME": name,
        "NCCL_IB_DISABLE": os.environ.get("NCCL_IB_DISABLE", "1"),
    }
    return f"={name}"
