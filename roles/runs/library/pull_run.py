#!/usr/bin/python3
"""Ansible module: pack what a run left behind. The action of the same name fetches it to the controller."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: pull_run
short_description: Fetch a run's output to the controller
description:
  - If each node noted how its part of the run ended (C(launch-0.json), C(launch-1.json) …), these notes are
    merged into C(launch.json), unless one is missing.
  - Checkpoints stay where they are. Tokens that the run made itself are removed, as they belong to the data
    set.
options:
  run_dir: {description: Directory of the attempt on the shared storage., type: path, required: true}
  dest: {description: Directory on the controller., type: path, required: true}
author: trainbed
"""

EXAMPLES = r"""
- name: Fetch the run's output
  pull_run:
    run_dir: /srv/trainbed/shared/runs/some-run/01
    dest: results/some-run/01/outputs
"""

RETURN = r"""
launch: {description: "Content of C(launch.json); empty if there is none.", type: dict, returned: always}
"""

EXCLUDED = ("./checkpoints", "./tokens")


def note_launch(run_dir: Path) -> None:
    """Merge the notes of the run's nodes into launch.json, unless one is missing."""
    path = run_dir / "launch.json"
    noted = sorted(run_dir.glob("launch-*.json"), key=lambda note: int(note.stem.partition("-")[2]))
    notes = [json.loads(note.read_text(encoding="utf-8")) for note in noted]
    if path.exists() or not notes or len(notes) != len(notes[0]["nodes"]):
        return
    # The first to fail: the others were ended because of it.
    failed = min((note for note in notes if note["exit_code"]), key=lambda note: note["ended"], default=None)
    merged = {
        **notes[0],
        "started": min(note["started"] for note in notes),
        "ended": max(note["ended"] for note in notes),
        "exit_code": failed["exit_code"] if failed else 0,
    }
    path.write_text(json.dumps(merged, indent=4) + "\n", encoding="utf-8")
    for note in noted:
        note.unlink()


def launch_of(run_dir: Path) -> dict[str, Any]:
    """Content of launch.json, with the end that the launcher reported, if it did."""
    path = run_dir / "launch.json"
    if not path.exists():
        return {}
    launch: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    ended = launchers_end(run_dir / "launcher.json")
    if ended is not None:
        launch["ended"] = ended
        path.write_text(json.dumps(launch, indent=4) + "\n", encoding="utf-8")
    return launch


def launchers_end(path: Path) -> float | None:
    """When the run ended according to its launcher, which may ask a scheduler; None if it does not say."""
    try:
        ended = json.loads(path.read_text(encoding="utf-8")).get("ended")
    except (FileNotFoundError, ValueError, AttributeError):
        return None  # missing or damaged, which is reported when the run is read
    return float(ended) if isinstance(ended, (int, float)) else None


def pack(run_dir: Path) -> Path:
    """Pack everything that is fetched, beside the directory.

    Raises:
        subprocess.CalledProcessError: it could not be packed.
    """
    package = run_dir.with_name(f"{run_dir.name}.tar.gz")
    excluded = [f"--exclude={name}" for name in EXCLUDED]
    command = ["tar", "--create", "--gzip", f"--file={package}", f"--directory={run_dir}", *excluded, "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 1: a file changed meanwhile, as may happen if a rank fails later than its partner.
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    package.chmod(0o644)
    return package


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "run_dir": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, launch={})
    run_dir = Path(module.params["run_dir"])
    os.umask(0o022)
    try:
        note_launch(run_dir)
        launch = launch_of(run_dir)
        package = pack(run_dir)
        if (run_dir / "tokens").exists():
            shutil.rmtree(run_dir / "tokens")
        checksum = hashlib.sha256(package.read_bytes()).hexdigest()
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"{run_dir} can't be packed: {error.stderr.strip()}")
    except (OSError, ValueError, KeyError) as error:
        module.fail_json(msg=f"{run_dir} can't be fetched: {error}")
    module.exit_json(changed=True, launch=launch, package=str(package), sha256=checksum)


if __name__ == "__main__":
    main()
