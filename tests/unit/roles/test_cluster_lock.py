"""The cluster's lock: who holds it, and whether the holder can still be alive."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.unit.roles.loading import call, load

lookup = load("roles/cluster_lock/lookup_plugins/controller.py")
lock = load("roles/cluster_lock/library/cluster_lock_file.py")


def holder(pid: int) -> dict[str, object]:
    return dict(lookup.LookupModule().run(["self", pid])[0])


def alive(who: dict[str, object]) -> bool:
    return bool(lookup.LookupModule().run(["alive", who])[0])


def test_a_running_process_is_alive_and_an_ended_one_is_not() -> None:
    child = subprocess.Popen(["sleep", "60"])
    who = holder(child.pid)
    assert alive(who)
    child.kill()
    child.wait()
    assert not alive(who)


def test_a_process_id_that_was_given_to_another_process_is_not_the_holder() -> None:
    assert not alive({**holder(os.getpid()), "started": "1"})


GONE = {"pid": 1, "started": "1"}
REBOOTED = {**GONE, "boot": "another"}
ELSEWHERE = {**REBOOTED, "machine": "m2"}
HERE = {"host": "desk", "machine": hashlib.sha256(b"trainbed m1").hexdigest()[:32]}


@pytest.mark.parametrize(
    ("said", "is_alive"),
    [
        ({**HERE, **GONE}, False),
        ({**HERE, **REBOOTED}, False),
        # The host name is no identity, neither to take a lock over nor to leave it.
        ({**HERE, **ELSEWHERE}, True),
        ({**HERE, **GONE, "host": "renamed"}, False),
        # Two machines made from one image; two containers on one machine.
        ({**HERE, **REBOOTED, "host": "copy"}, True),
        ({**HERE, **GONE, "pid_namespace": "pid:[1]"}, True),
        # Locks of earlier versions name no machine.
        ({"host": "desk", **GONE}, False),
        ({"host": "desk", **REBOOTED}, True),
        ({"host": "?", "pid": 0}, True),
    ],
)
def test_only_a_process_of_this_machine_can_be_known_to_be_gone(
    said: dict[str, object], is_alive: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "machine-id").write_text("m1\n")
    monkeypatch.setattr(lookup, "MACHINE_IDS", [tmp_path / "machine-id"])
    monkeypatch.setattr(socket, "gethostname", lambda: "desk")
    boot = {"boot": lookup.boot_id()} if said["pid"] else {}
    assert alive({**boot, **said}) is is_alive


@pytest.mark.parametrize("content", [None, "", "uninitialized\n"])
def test_without_a_machine_id_a_lock_of_another_boot_is_left(
    content: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "machine-id").write_text(content)
    monkeypatch.setattr(lookup, "MACHINE_IDS", [tmp_path / "machine-id"])
    who = holder(os.getpid())
    assert who["machine"] == "" and alive(who)
    assert alive({**who, "boot": "another"})


def test_a_lock_is_released_by_its_process_under_another_host_name(tmp_path: Path) -> None:
    who = holder(os.getpid())
    path = tmp_path / "lock"
    assert lock.create(path, who)
    assert call(lock, path=str(path), state="free", holder={**who, "host": "renamed"})["holder"] == {}
    assert not path.exists()


def test_of_two_takers_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "var" / "lock"
    assert lock.create(path, {"host": "a", "pid": 1})
    assert not lock.create(path, {"host": "b", "pid": 2})
    assert lock.read(path)["host"] == "a"
    assert [file.name for file in path.parent.iterdir()] == ["lock"]


def test_an_unreadable_lock_is_held_by_nobody_known(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("half a li", encoding="utf-8")
    assert "unreadable" in lock.read(path)["verb"]
