"""Small private files written in one call, by Ansible itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.roles.loading import ROOT


def call(path: Path, contents: dict[str, str], copies: dict[str, str], *options: str) -> dict[str, Any]:
    """Call the module on this machine; returns its result."""
    arguments = json.dumps({"path": str(path), "contents": contents, "copies": copies})
    command = f"{sys.executable} -m ansible adhoc localhost -i localhost, -c local -m settings_files".split()
    environment = {name: value for name, value in os.environ.items() if name != "ANSIBLE_CONFIG"}
    done = subprocess.run(
        [*command, "-M", str(ROOT / "roles/testbed/library"), *options, "-a", arguments],
        env={**environment, "ANSIBLE_PYTHON_INTERPRETER": sys.executable},
        cwd="/",  # away from the repository's ansible.cfg
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout.partition("=> ")[2])
    return result


def test_files_are_written_once_privately_and_leftovers_go(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("public\n", encoding="utf-8")
    root = tmp_path / "state"
    contents, copies = {"nodes/a/link": "one\n", "image/x.conf": ""}, {"nodes/a/key": str(key)}
    assert call(root, contents, copies, "--check")["changed"]
    assert not root.exists()

    assert sorted(call(root, contents, copies)["written"]) == ["image/x.conf", "nodes/a/key", "nodes/a/link"]
    assert (root / "nodes/a/key").read_text(encoding="utf-8") == "public\n"
    assert {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()} == {0o600}
    assert not call(root, contents, copies)["changed"]

    (root / "ssh").mkdir()
    (root / "ssh" / "login").touch()
    (root / "nodes/a/link").chmod(0o644)
    result = call(root, {"nodes/a/link": "one\n"}, {"nodes/b/key": str(key)})
    assert (sorted(result["written"]), result["removed"]) == (
        ["nodes/a/link", "nodes/b/key"],
        ["nodes/a/key"],
    )
    # It leaves directories alone that no wanted name begins with.
    assert (root / "ssh" / "login").exists()
    assert (root / "image" / "x.conf").exists()
