"""The variables that a folder outside the checkout sets for its stacks are defaults on every node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


def _ask(folder: Path | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    environment.pop("TRAINBED_STACKS", None)
    if folder is not None:
        environment["TRAINBED_STACKS"] = str(folder)
    program = Path(sys.executable).parent / "ansible-inventory"
    return subprocess.run(
        [program, "--inventory", "inventory/testbed", "--host", "worker1"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _variables(folder: Path | None) -> dict[str, Any]:
    done = _ask(folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_its_variables_are_there_and_the_inventorys_own_come_before_them(tmp_path: Path) -> None:
    common = tmp_path / "inventory" / "common"
    common.mkdir(parents=True)
    (common / "mine.yml").write_text("mine_port: 7000\nworker_threads: 64\n")

    found, without = _variables(tmp_path), _variables(None)

    assert found["mine_port"] == 7000 and "mine_port" not in without
    assert found["worker_threads"] == without["worker_threads"] != 64


def test_a_folder_that_is_not_there_stops_every_playbook(tmp_path: Path) -> None:
    done = _ask(tmp_path / "nothing")

    assert done.returncode != 0
    assert "there is no such folder" in done.stderr
