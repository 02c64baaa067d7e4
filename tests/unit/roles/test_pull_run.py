"""What becomes of a run's output on the controller: unpacking it, and one note of how the run ended."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from tests.unit.roles.loading import load


def noted(folder: Path, *exits: tuple[float, int]) -> dict[str, Any]:
    """The run's note, from what the first nodes of three noted: when the command ended, and its code."""
    nodes = ["worker1", "worker2", "worker3"]
    for number, (ended, code) in enumerate(exits):
        note = {"stack": "some", "started": 10.0 - number, "ended": ended, "exit_code": code, "nodes": nodes}
        note["hosts"] = [nodes[number]]
        (folder / f"launch-{number}.json").write_text(json.dumps(note))
    plugin = load("roles/runs/action_plugins/note_launch.py")
    plugin.merge_notes(folder)
    launch: dict[str, Any] = plugin.launch_of(folder)
    return launch


def test_the_exit_code_is_that_of_the_node_that_failed_first(tmp_path: Path) -> None:
    launch = noted(tmp_path, (45.0, 143), (12.0, 127), (11.0, 0))
    assert (launch["started"], launch["ended"], launch["exit_code"]) == (8.0, 45.0, 127)


def test_nodes_that_succeeded_make_a_run_that_did(tmp_path: Path) -> None:
    launch = noted(tmp_path, (45.0, 0), (12.0, 0), (11.0, 0))
    assert launch["exit_code"] == 0 and not list(tmp_path.glob("launch-*.json"))
    assert launch["hosts"] == ["worker1", "worker2", "worker3"]


def test_nothing_is_merged_while_a_node_has_not_noted_its_end(tmp_path: Path) -> None:
    assert noted(tmp_path, (45.0, 0), (12.0, 1)) == {}
    assert len(list(tmp_path.glob("launch-*.json"))) == 2


def unpacked(folder: Path, *members: tarfile.TarInfo | tuple[str, str]) -> list[str]:
    """Unpack a package with these files (name and text) and other members; returns what was left out."""
    package = folder / "package.tar.gz"
    with tarfile.open(package, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1].encode())
            archive.addfile(info, io.BytesIO(member[1].encode()))
    plugin = load("roles/runs/action_plugins/pull_run.py")
    checksum = hashlib.sha256(package.read_bytes()).hexdigest()
    left: list[str] = plugin.unpack(package, checksum, folder / "home")
    return left


def link(name: str, target: str) -> tarfile.TarInfo:
    """A symbolic link."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def test_roots_file_stays_whichever_is_unpacked_first(tmp_path: Path) -> None:
    logs = [("run/logs/a.log", "made up"), ("launch/logs/a.log", "true")]
    for order in (logs, logs[::-1]):
        assert unpacked(tmp_path, *order, ("run/logs/trial.log", "of a rank")) == []
        found = {path.name: path.read_text() for path in (tmp_path / "home" / "logs").iterdir()}
        assert found == {"a.log": "true", "trial.log": "of a rank"}


def test_links_are_left_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    pipe = tarfile.TarInfo("run/pipe")
    pipe.type = tarfile.FIFOTYPE
    members: list[tarfile.TarInfo | tuple[str, str]] = [
        link("run/logs", str(outside)),
        pipe,
        ("launch/logs/a.log", "true"),
    ]
    assert unpacked(tmp_path, *members) == ["logs", "pipe"]
    assert not list(outside.iterdir()) and (tmp_path / "home" / "logs" / "a.log").read_text() == "true"


@pytest.mark.parametrize("name", ["run/../../x", "/etc/x", "x", "launch/a/../../../x"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AnsibleActionFail, match="leads out of it"):
        unpacked(tmp_path, (name, "text"))


def test_a_damaged_package_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.write_bytes(b"not what was sent")
    with pytest.raises(AnsibleActionFail, match="was damaged on the way"):
        load("roles/runs/action_plugins/pull_run.py").unpack(package, "0" * 64, tmp_path / "home")
