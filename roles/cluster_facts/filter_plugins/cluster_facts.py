"""Filters that assemble what a record says about the cluster."""

from __future__ import annotations

import hashlib
import json
import shlex
from typing import Any


def cluster_facts_nodes(
    hosts: list[str], hostvars: Any, addresses: list[str], slots: int
) -> dict[str, dict[str, Any]]:
    """Join each node's description of itself with its address, its groups and the slots that it offers.

    `hosts` and `addresses` are in the same order; `hostvars` holds each host's results `cluster_facts_node`
    and `nvidia_listing`; `slots` are each worker's.
    """
    nodes = {}
    for host, address in zip(hosts, addresses, strict=True):
        described = json.loads(hostvars[host]["cluster_facts_node"]["stdout"])
        listed = json.loads(hostvars[host]["nvidia_listing"]["stdout"])
        nodes[host] = {
            **described,
            "gpus": listed["gpus"],
            "address": address,
            "groups": sorted(hostvars[host]["group_names"]),
            "slots": slots if "workers" in hostvars[host]["group_names"] else 0,
        }
    return nodes


def cluster_facts_reason(result: dict[str, Any]) -> str:
    """Why a task failed, on one line: a program's last words, or else Ansible's."""
    words = [line for line in str(result.get("stderr") or "").splitlines() if line.strip()]
    said = words[-1] if words else str(result.get("msg") or "unknown")
    # Ansible's preface to what ssh says.
    return " ".join(said.split()).removeprefix("Task failed: ").rpartition("can be reached over ssh: ")[2]


def cluster_facts_states(hosts: list[str], hostvars: Any, addresses: list[str]) -> dict[str, dict[str, Any]]:
    """Each node's address, groups and state, or the reason why that is unknown.

    `hosts` and `addresses` are in the same order; `hostvars` holds each host's result
    `cluster_facts_status`, or `status_trouble`.
    """
    states = {}
    for host, address in zip(hosts, addresses, strict=True):
        found = hostvars[host]
        asked = found.get("cluster_facts_status", {})
        states[host] = {
            "address": address,
            "groups": sorted(found["group_names"]),
            "trouble": cluster_facts_reason(asked)
            if asked.get("unreachable")
            else found.get("status_trouble"),
            "state": json.loads(asked["stdout"]) if asked.get("rc") == 0 else None,
        }
    return states


def cluster_facts_environments(nodes: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Digests of the environments beside the first that every node has, and all the same one, by name."""
    digests = [described["environments"] for described in nodes.values()]
    return {
        name: digest
        for name, digest in digests[0].items()
        if all(each.get(name) == digest for each in digests)
    }


def cluster_facts_megabits(result: Any) -> float | None:
    """Received Mbit/s in an iperf3 client's JSON output; None if nothing was measured."""
    if not result or "stdout" not in result:
        return None
    return float(round(json.loads(result["stdout"])["end"]["sum_received"]["bits_per_second"] / 1e6, 1))


def cluster_facts_settings(listed: str, hosts: list[str], stacks: list[str]) -> dict[str, str]:
    """Digest, for each stack, the inventory's variables for its role and for runs on these hosts.

    `listed` is the output of ansible-inventory --list: the inventory's variables with templates unexpanded,
    without what roles and tasks add. Passwords are left out, as they do not affect how runs are launched.
    """
    variables = json.loads(listed)["_meta"]["hostvars"]
    digests = {}
    for stack in stacks:
        said = {
            host: {
                name: value
                for name, value in variables.get(host, {}).items()
                if name.startswith((f"{stack}_", "run_")) and "password" not in name
            }
            for host in hosts
        }
        digests[stack] = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return digests


class FilterModule:
    """Entry point for Ansible."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "cluster_facts_nodes": cluster_facts_nodes,
            "cluster_facts_reason": cluster_facts_reason,
            "cluster_facts_states": cluster_facts_states,
            "cluster_facts_environments": cluster_facts_environments,
            "cluster_facts_megabits": cluster_facts_megabits,
            "cluster_facts_settings": cluster_facts_settings,
            "cluster_facts_words": shlex.split,
        }
