"""Which network interface the ranks communicate over."""

from __future__ import annotations

import os

from training.util.network import interface_towards_master


def choose_interface() -> str:
    """Make NCCL and gloo use the interface that leads to `MASTER_ADDR`, and return its name.

    That address comes from the inventory, so gradients take the cluster's own network; NCCL by itself goes
    by the names of interfaces, and may pick a container engine's bridge. Settings that the environment
    already has are kept.
    """
    name = interface_towards_master()
    usual = {
        "NCCL_SOCKET_IFNAME": f"={name}",  # only this one; without "=", all that begin with it
        "GLOO_SOCKET_IFNAME": name,
        "NCCL_IB_DISABLE": "1",
    }
    for variable, value in usual.items():
        os.environ.setdefault(variable, value)
    return os.environ["NCCL_SOCKET_IFNAME"]
