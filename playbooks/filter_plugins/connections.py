"""Filter for playbooks/connections.yml."""

from __future__ import annotations

from typing import Any


def connections_hosts(hosts: list[str], hostvars: Any, wanted: list[str]) -> dict[str, Any]:
    """A group of a static inventory: each host with those of the wanted variables that it has."""
    return {
        "hosts": {
            host: {name: hostvars[host][name] for name in wanted if name in hostvars[host]} for host in hosts
        }
    }


class FilterModule:
    """Entry point for Ansible."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"connections_hosts": connections_hosts}
