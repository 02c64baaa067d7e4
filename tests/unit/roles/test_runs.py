"""Putting a run's directory on the shared storage, by the role itself, on this machine."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.unit.roles.loading import ROOT


def staged(folder: Path, run_dir: Path) -> tuple[int, str]:
    """Call roles/runs/tasks/stage.yml; its status and all it said, on one line."""
    variables: dict[str, Any] = {
        "run_id": "some-run",
        "run_dir": str(run_dir),
        "run_spec": {"stack": "plain"},
        "run_code": str(folder),  # is there already
        "run_code_archive": "/none",
        "run_suffix": "",
        "runs_user": pwd.getpwuid(os.getuid()).pw_name,
    }
    stage = {"name": "Stage", "ansible.builtin.import_role": {"name": "runs", "tasks_from": "stage.yml"}}
    play = {"hosts": "localhost", "connection": "local", "become": False, "gather_facts": False}
    playbook = folder / "stage.yml"
    playbook.write_text(json.dumps([play | {"name": "Stage", "vars": variables, "tasks": [stage]}]))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(playbook)],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        },
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_an_attempt_that_was_made_before_is_not_staged_again(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "some-run" / "20261122T100000Z-01"
    run_dir.parent.parent.mkdir()
    _, said = staged(tmp_path, run_dir)
    assert (run_dir / "logs").is_dir() and "is there already" not in said, said
    (run_dir / "failed").touch()
    (run_dir / "spec.json").unlink(missing_ok=True)

    status, said = staged(tmp_path, run_dir)
    assert status != 0
    assert f"{run_dir} is there already: an attempt of this number was made before" in said
    assert sorted(path.name for path in run_dir.iterdir()) == ["failed", "logs"]
