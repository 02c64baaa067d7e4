"""The screen of `status`, compared whole with a kept one, and what it says where something is amiss."""

from __future__ import annotations

import json
import os
import re
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from experiments.campaign.running_note import CommandNote
from experiments.cluster.provisioning import FOLDER
from experiments.cluster.status import ClusterStatus, Lock, explain_clock, parse, shared
from experiments.console.status import show_status
from experiments.util.errors import UserError
from experiments.util.processes import self_identity
from experiments.util.screen import Screen
from tests.unit.experiments.made_up_records import STARTED, campaign, planned, record

SCREENS = Path(__file__).resolve().parents[3] / "data" / "screens"
DESCRIBED = {
    "distribution": "Debian GNU/Linux 12 (bookworm)", "kernel": "6.1.0-30", "cpu": "A CPU", "cores": 4,
    "memory_mb": 16000, "python": "3.11.2", "torch": "2.13.0+cu126", "environment_digest": "e" * 64,
    "lock": "cu126-py3.11", "docker": "20.10.24", "java": None, "virtualization": "kvm",
    "image": "192.0.2.10:5000/trainbed:abc", "image_id": "sha256:1",
}  # fmt: skip
GPU = {
    "index": "0", "uuid": "GPU-1", "name": "NVIDIA GeForce GTX 1060 3GB", "memory_mb": 3008,
    "capability": "6.1", "mig": False, "driver": "535.247.01", "pseudo": False,
}  # fmt: skip
NO_GPUS: dict[str, Any] = {"pci": [], "module": None, "nouveau": False, "gpus": [], "trouble": None}
STATE = {
    "host": "master", "asked": 1000.0, "time": 1000.4, "up_s": 3 * 86400.0, "load": 0.21,
    "described": DESCRIBED,
    "disks": [
        {"mount": "/", "size_mb": 60000, "free_mb": 21504},
        {"mount": "/var", "size_mb": 90000, "free_mb": 30720},
        {"mount": "/srv/trainbed/shared", "size_mb": 90000, "free_mb": 30720},
    ],
    "failed_units": [],
    "clock": {"by": "chrony", "source": "192.0.2.1", "synchronised": True, "offset_s": -0.0004},
    "packages": {"torch": "2.13.0+cu126", "pyspark": "4.3.0"}, "stacks": None, "lock": None,
    "gpus": NO_GPUS,
}  # fmt: skip
HELD = {
    "verb": "run", "user": "ada", "host": "desk", "pid": 4711, "since": "2026-11-24T21:03:10Z",
    "machine": "m", "boot": "another", "started": "1",
}  # fmt: skip
STACKS = {"stacks": ["ddp", "spark", "own"], "left_out": {"determined": "Its packages can't be had."}}


def node(number: int, group: str, state: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    """A node as the playbook describes it."""
    groups = ["cluster", group]
    return {"address": f"192.0.2.{number}", "groups": groups, "trouble": None, "state": state, **more}


def cluster(device: str = "cuda", trouble: str | None = None, **of_master: Any) -> ClusterStatus:
    """A master and two workers, one of which is down, and one whose driver may have `trouble`."""
    gpus = {**NO_GPUS, "pci": ["1c02"], "module": "535.247.01", "gpus": [GPU], "trouble": trouble}
    worker = {**STATE, "host": "worker1", "failed_units": ["made-up.service"], "clock": None, "gpus": gpus}
    nodes = {
        "master": node(10, "master", {**STATE, **of_master}),
        "worker1": node(11, "workers", worker),
        "worker2": node(12, "workers", None, trouble="Connection timed out"),
    }
    told = {"inventory": "lab", "device": device, "answered": 1002.0, "nodes": nodes}
    return parse(json.dumps(told).encode())


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results with a record of provisioning and a running campaign, one of whose two runs is done."""
    plan = [planned("ddp", 1), planned("ddp", 2)]
    made = campaign(tmp_path, plan, [record("ddp", 1, 60.0, 80.0)])
    folder = made.folder.parent.parent
    note = CommandNote(
        matrix=made.file.matrix,
        started=STARTED - timedelta(hours=1),
        controller=self_identity(),
        campaign=made.file.name,
        selected=[run.run_id for run in plan],
        todo=[run.run_id for run in plan],
    )
    (folder / f".running-{os.getpid()}.json").write_text(note.model_dump_json())
    for attempt in made.attempts(plan[0].run_id):
        attempt.begin(STARTED)
    return folder


def provisioned(results: Path, **changes: Any) -> None:
    """Write a record of provisioning."""
    content = {
        "schema_version": 2, "inventory": "lab", "variables": {}, "environment_digest": "e" * 64,
        "nodes": {"master": "192.0.2.10", "worker1": "192.0.2.11", "worker2": "192.0.2.12"},
        "started": "2026-11-23T09:00:00.000+00:00", "ended": "2026-11-23T09:12:30.000+00:00",
        "status": "ok", "partial": [], "roles": [], "ansible": "2.20.0",
        "git": {"revision": "0123456789abcdef", "dirty": False}, **changes,
    }  # fmt: skip
    (results / FOLDER).mkdir(exist_ok=True)
    name = f"2026112{len(list((results / FOLDER).iterdir()))}T090000Z.json"
    (results / FOLDER / name).write_text(json.dumps(content))


def shown(status: ClusterStatus, results: Path, capsys: pytest.CaptureFixture[str]) -> str:
    show_status(Screen(), status, results)
    return capsys.readouterr().out


def test_the_screen(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    provisioned(results)
    provisioned(results, inventory="another lab")

    out = shown(cluster(stacks=STACKS, lock=HELD), results, capsys)

    assert out == (SCREENS / "status.txt").read_text(encoding="utf-8")


def test_a_cluster_that_was_never_provisioned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = {**DESCRIBED, **dict.fromkeys(("torch", "environment_digest", "docker", "image", "image_id"))}

    lines = shown(cluster(described=bare, packages={}), tmp_path, capsys)

    assert "stacks       none: the cluster was not provisioned" in lines
    assert "none (master), torch 2.13.0+cu126" in lines and "no record of it on this machine" in lines
    assert "lock         free" in lines and "none that was started from here" in lines


def test_a_driver_that_nobody_asked_for_is_no_trouble(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = "There is no nvidia-smi on this node"
    assert f"worker1: {missing}" in shown(cluster(trouble=missing), tmp_path, capsys)
    alone = shown(cluster("cpu", missing), tmp_path, capsys)
    assert missing not in alone
    assert "GPU driver   not asked for: worker_device is cpu" in alone


def test_without_the_master_lock_and_stacks_are_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = cluster()
    down = status.nodes["master"].model_copy(update={"state": None, "trouble": "No route to host"})
    status = status.model_copy(update={"nodes": {**status.nodes, "master": down}})

    lines = shown(status, tmp_path, capsys)

    assert "master is down: No route to host" in lines
    assert lines.count("unknown, because the master does not answer") == 2


def test_a_failed_or_partial_provisioning_is_called_so(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    provisioned(results)
    provisioned(results, status="failed", partial=["tags=install"], git={"revision": None, "dirty": True})
    out = shown(cluster(), results, capsys)
    assert "FAILED after 12 min, only tags=install, from no commit with uncommitted changes" in out


def test_a_node_too_busy_to_describe_itself_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(cluster(described=None, gpus=None), tmp_path, capsys)
    assert "master did not say in time" in lines
    assert "  master   master  up 3 d  -      -       no answer" in lines


def test_a_lock_is_stale_only_if_its_process_was_here() -> None:
    mine = self_identity()
    me = {"pid": mine["pid"], "started": mine["start"], "boot": mine["boot"]}
    assert not Lock.model_validate(me).ended
    assert Lock.model_validate({**me, "started": "1"}).ended
    assert not Lock.model_validate({**me, "started": "1", "boot": "another"}).ended
    assert not Lock.model_validate({**me, "started": "1", "pid_namespace": "pid:[1]"}).ended
    assert not Lock.model_validate({}).ended  # a damaged file


def test_a_lock_from_before_a_restart_of_this_machine_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = {**HELD, "host": socket.gethostname()}
    out = re.sub(r"\s+", " ", shown(cluster(lock=lock), tmp_path, capsys))
    assert "; if that is this machine, it was restarted since, and the next command takes it over" in out
    assert not Lock.model_validate({**lock, "host": "elsewhere"}).before_restart
    assert not Lock.model_validate({"host": socket.gethostname()}).before_restart


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "0.4 ms off"),
        ({"time": 997.0}, "3.0 s behind"),
        ({"time": 1063.0}, "61.0 s ahead"),
        ({"clock": None}, "no NTP"),
        ({"clock": {"by": "chrony", "source": None, "synchronised": False, "offset_s": None}}, "not synch"),
        ({"clock": {"by": "timesyncd", "source": None, "synchronised": True, "offset_s": None}}, "set by"),
    ],
)
def test_clocks(changes: dict[str, Any], words: str) -> None:
    state = cluster(**changes).master
    assert state is not None and words in explain_clock(state, 1002.0)


def test_what_differs_is_said_with_the_nodes_that_have_it() -> None:
    assert shared({"a": 1, "b": 1}) == "1"
    assert shared({"a": 1, "b": 2, "c": 1}) == "1 (a, c), 2 (b)"


def test_an_answer_of_another_form_is_refused() -> None:
    with pytest.raises(UserError, match="nodes' answer"):
        parse(b'{"inventory": "lab", "device": "", "answered": 1.0, "nodes": {"master": {}}}')
    with pytest.raises(UserError, match="The inventory lab is not there"):
        parse(b'{"inventory": "lab", "device": "", "answered": 1.0, "nodes": {}}')
