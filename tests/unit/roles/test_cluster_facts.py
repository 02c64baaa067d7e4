"""The digest of what the inventory sets for a stack's runs."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.roles.loading import load

facts = load("roles/cluster_facts/filter_plugins/cluster_facts.py")
STACKS = ["ddp", "spark"]


def digests(**variables: Any) -> dict[str, str]:
    """The digests of a cluster of two nodes; the second has these variables."""
    said = {"ddp_shm_size": "1g", "spark_executor_memory": "2g", "run_place": 0}
    hostvars = {"master": said, "worker1": said | variables, "elsewhere": {"ddp_shm_size": "9g"}}
    listed = json.dumps({"_meta": {"hostvars": hostvars}})
    found: dict[str, str] = facts.cluster_facts_settings(listed, ["master", "worker1"], STACKS)
    return found


def test_every_node_says_what_it_has() -> None:
    def node(groups: list[str], cores: int) -> dict[str, Any]:
        described = {"cores": cores, "memory_mb": 1000 * cores}
        return {
            "cluster_facts_node": {"stdout": json.dumps(described)},
            "nvidia_listing": {"stdout": json.dumps({"gpus": []})},
            "group_names": groups,
        }

    hostvars = {"master": node(["master", "cluster"], 2), "worker1": node(["workers", "cluster"], 1)}
    seen = facts.cluster_facts_nodes(["master", "worker1"], hostvars, ["10.0.0.1", "10.0.0.2"], 3)

    assert {name: (each["cores"], each["slots"], each["address"]) for name, each in seen.items()} == {
        "master": (2, 0, "10.0.0.1"),
        "worker1": (1, 3, "10.0.0.2"),
    }


def test_a_setting_of_one_node_changes_its_stack_and_no_other() -> None:
    assert digests(spark_executor_memory="4g")["spark"] != digests()["spark"]
    assert digests(spark_executor_memory="4g")["ddp"] == digests()["ddp"]


def test_settings_of_runs_are_of_every_stack() -> None:
    changed = digests(run_nodes=["worker1"])
    assert all(changed[stack] != digests()[stack] for stack in STACKS)


def test_what_launches_nothing_changes_nothing() -> None:
    assert digests(base_address="198.18.0.11", spark_password="one", other=1) == digests()
