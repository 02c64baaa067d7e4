#!/usr/bin/python3
"""Ansible module: pack what a run left behind. The action of the same name fetches it to the controller."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO, Any, Final

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.file_digests import file_sha256
from ansible.module_utils.run_places import UnknownUser, as_user, roots_directory

DOCUMENTATION = r"""
---
module: pull_run
short_description: Fetch to the controller what a run left on this node
description:
  - Fetches what is in O(launch_dir), if this node has it, and removes it from the node. What is in O(run_dir)
    is fetched from one node, and stays.
  - Where both have a file of the same name, root's is kept, the one in O(launch_dir).
  - Only files and directories are fetched, no links. Checkpoints, the model and what a script wrote stay.
    Tokens that the run made itself are removed, as they belong to the data set.
options:
  run_dir:
    description: Directory of the attempt on the shared storage; only for the node that fetches it.
    type: path
  launch_dir:
    description: Directory of the attempt on this node, where only root writes.
    type: path
    required: true
  user: {description: User that training runs as., type: str, required: true}
  dest: {description: Directory on the controller., type: path, required: true}
author: trainbed
"""

EXAMPLES = r"""
- name: Fetch the run's output
  pull_run:
    run_dir: /srv/trainbed/shared/runs/some-run/01
    launch_dir: /var/lib/trainbed/launches/some-run/01
    user: trainbed
    dest: results/some-run/01/outputs
"""

RETURN = r"""
pulled: {description: "Which directories were there: C(run), C(launch).", type: list, returned: always}
left: {description: What was not fetched as it is no file., type: list, returned: if anything was fetched}
"""

#: Of the run's directory. How a run ended is what root noted, not what the job may have written.
EXCLUDED: Final = (
    *(f"./{at}{name}" for at in ("", "trial-*/") for name in ("checkpoints", "model", "tokens", "script")),
    *("./launch.json", "./launch-*.json"),
)


def tar(directory: Path, named: str, excluded: tuple[str, ...], to: IO[bytes], **user: Any) -> None:
    """Append a directory's content to a package, in a directory with this name.

    Raises:
        subprocess.CalledProcessError: it could not be packed.
    """
    command = [
        "tar",
        "--create",
        "--gzip",
        "--hard-dereference",
        f"--transform=s,^[.],{named},",
        f"--directory={directory}",
        "--anchored",
        "--no-wildcards-match-slash",
        *(f"--exclude={name}" for name in excluded),
        ".",
    ]
    done = subprocess.run(command, stdout=to, stderr=subprocess.PIPE, text=True, check=False, **user)
    # 1: a file changed meanwhile, as may happen if a rank fails later than its partner.
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)


def pack(run_dir: Path | None, launch_dir: Path, user: str) -> tuple[Path | None, list[str]]:
    """Pack what is there beside the launch's directory; returns the package, and what it holds.

    The package is two archives in a row. The user packs its own files: whatever links they are behind, it
    gets no more than it may read.

    Raises:
        subprocess.CalledProcessError: it could not be packed.
        UnknownUser: there is no such user.
        OSError: the package could not be written.
    """
    launched = launch_dir.is_dir()
    if run_dir is None and not launched:
        return None, []
    package = roots_directory(launch_dir.parent) / f"{launch_dir.name}.tar.gz"
    pulled = []
    try:
        with package.open("wb") as file:
            if run_dir is not None:
                tar(run_dir, "run", EXCLUDED, file, **as_user(user))
                pulled.append("run")
            if launched:
                tar(launch_dir, "launch", (), file)
                pulled.append("launch")
    except BaseException:
        package.unlink()
        raise
    # Ansible's own user fetches it.
    package.chmod(0o644)
    return package, pulled


def remove_tokens(run_dir: Path, user: str) -> None:
    """Remove the tokens that a run made itself, as their owner.

    Raises:
        subprocess.CalledProcessError: they could not be removed.
    """
    tokens = run_dir / "tokens"
    if tokens.exists():
        command = ["rm", "--recursive", "--force", "--", str(tokens)]
        subprocess.run(command, capture_output=True, text=True, check=True, **as_user(user))


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "run_dir": {"type": "path"},
            "launch_dir": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, pulled=[])
    asked = module.params
    run_dir, launch_dir = Path(asked["run_dir"]) if asked["run_dir"] else None, Path(asked["launch_dir"])
    os.umask(0o022)
    try:
        package, pulled = pack(run_dir, launch_dir, asked["user"])
        if run_dir is not None:
            remove_tokens(run_dir, asked["user"])
        checksum = file_sha256(package) if package else ""
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"{run_dir or launch_dir} can't be packed: {error.stderr.strip()}")
    except (UnknownUser, OSError) as error:
        module.fail_json(msg=f"{run_dir or launch_dir} can't be fetched: {error}")
    there = {"package": str(package), "sha256": checksum} if package else {}
    module.exit_json(changed=bool(package), pulled=pulled, **there)


if __name__ == "__main__":
    main()
