"""The script that reads a node's state for `make status`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.roles.loading import ROOT, load

SCRIPT = ROOT / "roles" / "cluster_facts" / "files" / "node-status"
LIST_GPUS = (ROOT / "roles" / "nvidia" / "files" / "list-gpus").read_text(encoding="utf-8")
DESCRIBE = (SCRIPT.parent / "describe-node").read_text(encoding="utf-8")
status = load("roles/cluster_facts/files/node-status")

#: What chronyc -n -c tracking prints of a clock that follows 198.18.0.10, and of one that follows nothing.
FOLLOWS = (
    "C612000A,198.18.0.10,11,1764027001.5,-0.000123,0.00001,0.00002,-3.1,0.01,0.2,0.0004,0.0003,64.2,Normal"
)
ALONE = "00000000,,0,0.0,0.000000000,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised"


def asked(folder: Path, **changes: Any) -> dict[str, Any]:
    """What the controller asks a node whose files are in `folder`."""
    return {
        "describe": DESCRIBE,
        "list_gpus": LIST_GPUS,
        "gpu_options": [],
        "environment": str(folder / "env"),
        "image_note": str(folder / "image"),
        "stacks_note": str(folder / "stacks.json"),
        "lock": str(folder / "lock"),
        "disks": ["/", str(folder / "nowhere" / "at" / "all")],
        "asked": time.time(),
        **changes,
    }


def run(questions: dict[str, Any], path: str) -> Any:
    """What the script prints, sent as the playbook sends it."""
    done = subprocess.run(
        [sys.executable, "-", json.dumps(questions)],
        input=SCRIPT.read_text(encoding="utf-8"),
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for stand-ins of the programs that a node has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def program(folder: Path, name: str, script: str) -> None:
    """Write a stand-in."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_of_a_node_that_was_never_provisioned_it_says_what_there_is(tmp_path: Path) -> None:
    found = run(asked(tmp_path), "/usr/bin:/bin")

    assert found["described"]["cores"] >= 1 and found["described"]["environment_digest"] is None
    assert (found["stacks"], found["lock"], found["packages"]) == (None, None, {})
    assert found["disks"][0]["mount"] == "/" and found["disks"][0]["free_mb"] > 0
    assert found["asked"] <= found["time"] <= time.time() and found["up_s"] > 0
    assert found["gpus"]["gpus"] == []


def test_gpus_that_are_only_declared_are_listed(tmp_path: Path) -> None:
    found = run(asked(tmp_path, gpu_options=["--pseudo", "2"]), "/usr/bin:/bin")
    assert [gpu["pseudo"] for gpu in found["gpus"]["gpus"]] == [True, True]


def test_of_a_provisioned_node_it_says_what_is_installed(tmp_path: Path, programs: Path) -> None:
    for package in ("torch-2.13.0+cpu", "typing_extensions-4.15.0"):
        (tmp_path / "env" / "lib" / "python3.11" / "site-packages" / f"{package}.dist-info").mkdir(
            parents=True
        )
    torch = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "torch"
    torch.mkdir()
    (torch / "version.py").write_text("__version__ = '2.13.0+cpu'\n")
    (tmp_path / "env" / "DIGEST").write_text("abc\n")
    (tmp_path / "stacks.json").write_text('{"stacks": ["one"], "left_out": {"two": "Why."}}')
    (tmp_path / "lock").write_text('{"verb": "provision", "pid": 7}')
    program(programs, "chronyc", f"echo {FOLLOWS}")
    program(programs, "systemctl", "echo 'made-up.service loaded failed failed Made up'")

    found = run(asked(tmp_path), f"{programs}:/usr/bin:/bin")

    assert found["packages"] == {"torch": "2.13.0+cpu", "typing-extensions": "4.15.0"}
    assert found["described"]["torch"] == "2.13.0+cpu"
    assert found["described"]["environment_digest"] == "abc"
    assert found["stacks"]["left_out"] == {"two": "Why."} and found["lock"]["pid"] == 7
    assert found["failed_units"] == ["made-up.service"]
    assert found["clock"] == {
        "by": "chrony",
        "source": "198.18.0.10",
        "synchronised": True,
        "offset_s": -0.000123,
    }


def test_a_clock_that_follows_nothing_has_no_offset(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "chronyc", f"echo '{ALONE}'")
    monkeypatch.setenv("PATH", str(programs))
    assert status.clock() == {"by": "chrony", "source": None, "synchronised": False, "offset_s": None}


def test_a_program_that_hangs_is_not_waited_for(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "df", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(status, "PATIENCE", 0.2)
    began = time.monotonic()
    assert status.disks(["/"]) == []
    assert time.monotonic() - began < 10


def test_a_damaged_lock_is_a_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("half a li")
    assert status.content(str(tmp_path / "lock")) == {}
    assert status.content(str(tmp_path / "none")) is None
