"""An inventory that changes between provisionings: nodes renamed, gone, in other groups, and back again."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.matrices import records, small
from tests.e2e.spark import living_workers
from tests.e2e.testbeds import Done, Testbed, wait_for

pytestmark = pytest.mark.wide

ADDRESSES = {"master": 10, "worker1": 11, "worker2": 12, "second": 12}
UNITS = ("spark-worker", "determined-agent")


@pytest.fixture(scope="module")
def site(provisioned: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """The shared testbed under an inventory outside the checkout; afterwards it is what it was."""
    folder = tmp_path_factory.mktemp("site") / "inventory"
    shutil.copytree(provisioned.root / "inventory" / "testbed", folder)
    yield dataclasses.replace(provisioned, extra=(("ANSIBLE_INVENTORY", str(folder)),))
    provisioned.make("provision")


def rewrite(site: Testbed, *workers: str) -> None:
    """Name these nodes as the workers."""
    cores = "{{ testbed_cpu_list[%d %% (testbed_cpu_list | length)] }}"

    def place(name: str) -> dict[str, str]:
        return {"ansible_host": f"{{{{ testbed_prefix }}}}.{ADDRESSES[name]}"}

    hosts = {name: {**place(name), "testbed_cpus": cores % i} for i, name in enumerate(workers)}
    groups = {"master": {"hosts": {"master": place("master")}}, "workers": {"hosts": hosts}}
    content = yaml.safe_dump({"all": {"children": {"cluster": {"children": groups}}}})
    Path(dict(site.extra)["ANSIBLE_INVENTORY"], "hosts.yml").write_text(content, encoding="utf-8")


def provision(site: Testbed, *arguments: str) -> Done:
    """Provision; in its output, each line break is a space."""
    done = site.make("provision", *arguments)
    return dataclasses.replace(done, output=re.sub(r"[^\S\n]*\n[^\S\n]*", " ", done.output))


def wait_for_workers(testbed: Testbed, *nodes: str) -> None:
    """Wait until these are the workers that Spark's master would give a run to, and no others."""
    wanted = sorted(f"{testbed.prefix}.{ADDRESSES[node]}" for node in nodes)
    wait_for(
        f"Spark's workers are {', '.join(nodes)}",
        lambda: sorted(worker["host"] for worker in living_workers(testbed)) == wanted,
        60,
    )


def states(testbed: Testbed, node: str) -> set[str]:
    """What systemd says of the stacks' units on a worker."""
    units = " ".join(UNITS)
    asked = f"systemctl is-active {units}; systemctl is-enabled {units}"
    return set(testbed.node(node, asked, check=False).output.split())


def test_a_part_of_it_mends_one_node_and_leaves_a_working_cluster(provisioned: Testbed) -> None:
    damage = "systemctl disable --now spark-worker && rm /etc/security/limits.d/trainbed.conf"
    provisioned.node("worker1", damage)
    before = provisioned.node("worker2", "cat /etc/hosts").output
    counts = provisioned.make("provision", "ARGS=--limit worker1").recap()
    assert counts["worker1"]["changed"] > 0 and counts.get("worker2", {"changed": 0})["changed"] == 0
    assert provisioned.node("worker2", "cat /etc/hosts").output == before
    provisioned.make("verify")


def test_a_part_gets_no_environment_that_the_rest_lacks(provisioned: Testbed) -> None:
    part = "ARGS=--limit master,worker1 -e environment_variant=cu130"
    refused = provisioned.make("provision", part, check=False)
    assert refused.code != 0
    assert "worker2 would keep the old environment" in re.sub(r"\s+", " ", refused.output)
    assert not refused.changed()


def test_a_node_with_another_name(site: Testbed) -> None:
    rewrite(site, "worker1", "second")
    done = provision(site)
    assert "worker2 is now called second." in done.output
    assert site.node("worker1", "getent hosts second").output.split()[0] == f"{site.prefix}.12"
    # Docker answers for its container's old name, too.
    assert site.node("worker1", "grep --word-regexp worker2 /etc/hosts", check=False).code == 1
    site.make("verify")
    site.make("matrix", f"MATRIX={small(site, 'members')}")
    assert {record["status"] for record in records(site, "members")} == {"ok"}


def test_a_node_that_left_is_stopped_and_unknown(provisioned: Testbed, site: Testbed) -> None:
    rewrite(site, "worker1")
    done = provision(site)
    assert "second is no longer in the inventory of this cluster: its services will be stopped" in done.output
    assert states(provisioned, "worker2") == {"inactive", "disabled"}
    wait_for_workers(site, "worker1")
    site.make("verify")
    assert not site.make("provision").changed()


def test_a_master_that_becomes_a_worker_too(site: Testbed) -> None:
    rewrite(site, "worker1", "master")
    provision(site)
    wait_for_workers(site, "master", "worker1")
    # And back: it stays the master.
    rewrite(site, "worker1", "worker2")
    done = provision(site)
    assert "master is no longer in workers of this cluster" in done.output
    assert states(site, "master") == {"inactive", "disabled"}
    wait_for_workers(site, "worker1", "worker2")
    site.make("verify")


def test_a_node_that_left_and_does_not_answer_is_named(provisioned: Testbed, site: Testbed) -> None:
    rewrite(site, "worker1")
    provisioned.machine("worker2").power_off()
    try:
        done = provision(site)
    finally:
        provisioned.machine("worker2").power_on()
    assert f"worker2 ({site.prefix}.12) left the cluster and does not let itself be changed" in done.output
    # It has started again, with an old secret: Spark's master does not take it.
    refused = "journalctl --boot --unit spark-worker --no-pager"
    wait_for("it was refused", lambda: "refused" in provisioned.node("worker2", refused, False).output, 120)
    wait_for_workers(site, "worker1")
