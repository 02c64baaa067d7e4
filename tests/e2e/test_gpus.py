"""GPUs on a testbed without any: declared ones, and stand-ins on the PCI bus for early decisions."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.e2e.matrices import records
from tests.e2e.spark import living_workers
from tests.e2e.testbeds import Done, Testbed, wait_for

pytestmark = pytest.mark.usefixtures("provisioned")

STAND_IN = "/root/sys-stand-in"
#: Nothing of CUDA is installed here, so its room must not be what stops a provisioning.
ROOM = ("-e", "preflight_spare_disk_mb=-1000000")
ROLE = """\
- hosts: workers
  roles: [nvidia]
"""


def with_gpus(testbed: Testbed, device: str, nodes: tuple[str, ...] = ("worker1", "worker2")) -> list[str]:
    """Give nodes a stand-in for /sys with one GPU of this PCI device id; the option that selects it."""
    place = f"{STAND_IN}/bus/pci/devices/0000:01:00.0"
    for node in nodes:
        testbed.node(
            node,
            f"rm -rf {STAND_IN} && mkdir -p {place} && cd {place} && "
            f"echo 0x10de > vendor && echo 0x030000 > class && echo 0x{device} > device",
        )
    return ["-e", f"nvidia_sysfs={STAND_IN}"]


def role(testbed: Testbed, *options: str, device: str = "cuda") -> Done:
    """Run the nvidia role alone, in check mode, for training on this device."""
    playbook = testbed.root / "gpus-only.yml"
    playbook.write_text(ROLE, encoding="utf-8")
    given = ("-e", f"worker_device={device}", *options)
    return testbed.run("ansible-playbook", str(playbook), "--check", *given, check=False)


@pytest.mark.parametrize(
    ("system", "device", "says"),
    [
        (
            "Debian-12",
            "1c02",
            "Pascal on Debian-12: driver 535 with proprietary modules.",
        ),
        ("Debian-13", "2330", "Hopper on Debian-13: driver 550 with open modules."),
        (
            "Ubuntu-24",
            "1c02",
            "Pascal on Ubuntu-24: driver 580 with proprietary modules.",
        ),
    ],
)
def test_check_mode_says_which_driver_would_be_installed(
    testbed: Testbed, system: str, device: str, says: str
) -> None:
    done = role(testbed, *with_gpus(testbed, device), "-e", f"nvidia_system={system}")
    said = re.sub(r"\s+", " ", done.output)
    assert done.code == 0, done.output[-3000:]
    assert says in said
    assert re.search(r"nvidia-(smi|utils).* would be installed, with .*dkms.* and the kernel's headers", said)
    assert (
        testbed.node("worker1", "test -e /etc/apt/sources.list.d/trainbed-nvidia.sources", check=False).code
        == 1
    )


def test_a_gpu_that_no_driver_serves_stops_it(testbed: Testbed) -> None:
    done = role(testbed, *with_gpus(testbed, "2b85"))
    assert done.code != 0
    assert "worker1: Blackwell needs the driver 570 or newer, but Debian-12 has 535: use another release" in (
        re.sub(r"\s+", " ", done.output)
    )


def test_graphics_cards_are_left_alone_where_training_runs_on_cpus(testbed: Testbed) -> None:
    done = role(testbed, *with_gpus(testbed, "2b85"), device="cpu")
    assert done.code == 0, done.output[-3000:]
    assert "would be installed" not in done.output and "Blackwell" not in done.output


def test_gpus_that_are_wanted_and_not_there_stop_everything_before_it_begins(testbed: Testbed) -> None:
    done = testbed.playbook("provision", "-e", "worker_device=cuda", *ROOM, check=False)
    said = re.sub(r"\s+", " ", done.output)
    assert done.code != 0
    for node in ("worker1", "worker2"):
        assert f"{node} has no NVIDIA GPU on its PCI bus, but training is to run on 1 of each worker" in said
    assert not done.changed()


def test_an_environment_that_cannot_be_locked_stops_everything_before_it_begins(testbed: Testbed) -> None:
    options = [*with_gpus(testbed, "1c02"), "-e", "artifacts_torch_index=http://127.0.0.1:9/whl/cu126"]
    done = testbed.playbook("provision", "-e", "worker_device=cuda", *options, *ROOM, check=False)
    said = re.sub(r"\s+", " ", done.output)
    assert done.code != 0
    assert (
        "There is no lock cu126-py3.11.txt for the environment that the nodes' Python and GPUs need" in said
    )
    assert "the index http://127.0.0.1:9/whl/cu126 does not answer" in said
    assert "another environment_variant, if the GPUs allow one: cpu and cu130 have locks" in said
    assert not done.changed()


@pytest.mark.usefixtures("measured")
def test_spark_gave_every_rank_a_declared_gpu_and_the_record_says_that_it_is_none(testbed: Testbed) -> None:
    by_stack = {record["specification"]["stack"]: record for record in records(testbed, "quick")}
    assert [rank["visible_gpus"] for rank in by_stack["spark"]["ranks"]] == ["0"] * len(
        by_stack["spark"]["ranks"]
    )
    assert all(rank["visible_gpus"] is None for rank in by_stack["ddp"]["ranks"])
    run = f"quick/*/{by_stack['spark']['run_id']}/01/outputs/spark.properties"
    (path,) = (testbed.root / "results").glob(run)
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    asked = {name: amount for name, *amount in lines if name.endswith("resource.gpu.amount")}
    assert asked == {"spark.executor.resource.gpu.amount": ["1"], "spark.task.resource.gpu.amount": ["1"]}
    for name, node in by_stack["spark"]["environment"]["nodes"].items():
        assert [gpu["pseudo"] for gpu in node["gpus"]] == ([True] if name != "master" else [])
    (report,) = (testbed.root / "results" / "quick").glob("*/report.md")
    assert "The pseudo-GPUs are only declared" in report.read_text(encoding="utf-8")


def test_a_worker_whose_gpu_is_gone_starts_all_the_same(testbed: Testbed) -> None:
    listed = {"pci": ["1c02"], "module": None, "nouveau": False, "gpus": [], "trouble": "The driver hangs."}
    program = f"#!/bin/sh\necho {shlex.quote(json.dumps(listed))}\n"
    restart = "systemctl restart spark-worker && systemctl is-active spark-worker"
    testbed.node("worker1", "cp -p /opt/trainbed/list-gpus /root/list-gpus")
    try:
        began = testbed.node("worker1", "date '+%F %T'").output.strip()
        testbed.node("worker1", f"printf %s {shlex.quote(program)} > /opt/trainbed/list-gpus && {restart}")
        told = f"journalctl -u spark-worker --since '{began}' --no-pager"
        wait_for("it logs its GPUs", lambda: "This worker offers" in testbed.node("worker1", told).output, 30)
        log = testbed.node("worker1", told).output
        assert "GPUs: The driver hangs." in log and "GPUs: This worker offers none." in log
    finally:
        testbed.node("worker1", f"mv /root/list-gpus /opt/trainbed/list-gpus && {restart}")
    wait_for("both workers offer one again", lambda: gpus_offered(testbed) == ["0", "0"], 60)


def gpus_offered(testbed: Testbed) -> list[str]:
    """Addresses of the GPUs that Spark's live workers offer."""
    living = [worker["resources"] for worker in living_workers(testbed)]
    return [address for each in living for address in each.get("gpu", {"addresses": []})["addresses"]]
