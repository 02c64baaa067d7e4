"""What tests ask of a node in several places."""

from __future__ import annotations

import ast

from testinfra.host import Host


def listening(node: Host, port: int) -> list[str]:
    """Addresses that something listens on at this TCP port."""
    rows = node.check_output("ss --listening --tcp --numeric --no-header").splitlines()
    return [
        local.rsplit(":", 1)[0].strip("[]").removeprefix("::ffff:")
        for row in rows
        if (local := row.split()[3]).rsplit(":", 1)[1] == str(port)
    ]


def usable_cores(node: Host) -> list[int]:
    """Cores that a login on this node may use."""
    return list(
        ast.literal_eval(node.check_output("python3 -c 'import os; print(sorted(os.sched_getaffinity(0)))'"))
    )
