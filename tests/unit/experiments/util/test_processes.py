"""Ending what a playbook started: real processes, some of which this user may not signal."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from experiments.util.processes import end_group, end_marked, processes_with
from tests.unit.experiments.campaign.test_loop import alive
from tests.unit.experiments.made_up_workplace import wait_until


def test_what_root_runs_below_a_playbook_does_not_keep_it_from_being_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, told = f"@{tmp_path}/vars.json", tmp_path / "child"
    # In a session of its own, as under sudo: signals to the group do not reach it.
    script = f"setsid sleep 600 & echo $! > '{told}'; trap '' TERM; while :; do sleep 0.1; done"
    playbook = subprocess.Popen(["bash", "-c", script, mark], process_group=0)
    wait_until(lambda: told.exists() and told.read_text().strip() != "")
    roots = int(told.read_text())
    kill = os.kill

    def kill_as_a_user(pid: int, number: int) -> None:
        if pid == roots:
            raise PermissionError(1, "Operation not permitted")
        kill(pid, number)

    def kill_group_of_root(_leader: int, _number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", kill_as_a_user)
    monkeypatch.setattr(os, "killpg", kill_group_of_root)
    try:
        begun = time.monotonic()
        end_group(playbook.pid, mark, grace=2)
        assert playbook.wait(timeout=5) == -signal.SIGKILL and alive(roots)
        # It waited once, for the process that ignores SIGTERM, and not for the one it may not signal.
        assert time.monotonic() - begun < 4
        assert not processes_with(mark) and end_marked(mark) is False
    finally:
        kill(roots, signal.SIGKILL)
        playbook.kill()
        playbook.wait()


def test_no_shell_goes_on_to_its_next_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, next_command, kill = f"@{tmp_path}/vars.json", tmp_path / "next", os.kill
    nested = tmp_path / "nested.sh"
    nested.write_text(f"""
        [ "$1" -gt 0 ] || exec sleep 600
        bash "$0" $(($1 - 1))
        touch '{next_command}'
    """)

    def kill_slowly(pid: int, number: int) -> None:
        kill(pid, number)
        time.sleep(0.2)

    monkeypatch.setattr(os, "kill", kill_slowly)
    playbook = subprocess.Popen(["bash", str(nested), "4", mark], process_group=0)
    try:
        wait_until(lambda: "sleep" in [child.name() for child in psutil.Process(playbook.pid).children(True)])
        assert end_marked(mark)
        assert playbook.wait(timeout=5) == -signal.SIGTERM and not next_command.exists()
    finally:
        playbook.kill()
        playbook.wait()
