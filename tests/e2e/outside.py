"""What a machine outside the cluster, this one, can reach on its nodes."""

from __future__ import annotations

import socket

from tests.e2e.testbeds import Testbed

#: Ports that docs/admin.md ("What listens where") and the stacks' pages name, besides sshd's and rpcbind's.
DOCUMENTED = {
    "master": {2049, 3142, 5000, 7077, 7080, 8070, 8080},
    "worker": {7078, 7081},
}
#: Seconds for an answer; a firewall gives none.
PATIENCE_S = 2.0


def answers(address: str, port: int) -> bool:
    """Whether something accepts connections at this address from here."""
    try:
        with socket.create_connection((address, port), timeout=PATIENCE_S):
            return True
    except OSError:
        return False


def open_ports(bed: Testbed, node: str) -> set[int]:
    """Those of a node's listeners that accept connections from outside, by the port."""
    rows = bed.node(node, "ss --listening --tcp --numeric --no-header").output.splitlines()
    ports = {int(row.split()[3].rpartition(":")[2]) for row in rows}
    address = bed.connections.groups["cluster"][node]["cluster_address"]
    return {port for port in ports if answers(address, port)}


def documented_ports(bed: Testbed, node: str) -> set[int]:
    """The ports of a node that the documentation names; those that rpcbind hands out with them."""
    handed = bed.node(node, "rpcinfo -p | awk 'NR > 1 {print $4}'", check=False).output.split()
    by_rpcbind = {int(port) for port in handed if port.isdigit()}
    return DOCUMENTED[node.rstrip("0123456789")] | by_rpcbind | {sshd_port(bed, node)}


def sshd_port(bed: Testbed, node: str) -> int:
    """The port at which the inventory reaches a node."""
    return int(bed.connections.groups["cluster"][node].get("ansible_port", 22))
