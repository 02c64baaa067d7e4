"""The cluster's lock: who holds it, and whether the holder can still be alive."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

from tests.unit.roles.loading import load

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


def test_a_holder_before_the_last_boot_is_gone_and_one_elsewhere_is_taken_to_be_alive() -> None:
    assert not alive({**holder(os.getpid()), "boot": "another"})
    assert alive({"host": socket.gethostname() + "-other", "pid": 1, "boot": "x", "started": "1"})


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
