"""Action plugin: fetch what a run left behind, in one go. The module of the same name packs it."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


def unpack(package: Path, sha256: str) -> None:
    """Unpack a package in its folder, and remove it.

    Raises:
        AnsibleActionFail: it was damaged on the way, or can't be unpacked.
    """
    arrived = hashlib.sha256(package.read_bytes()).hexdigest()
    if arrived != sha256:
        raise AnsibleActionFail(
            f"{package} was damaged on the way: its SHA-256 is {arrived}, but was {sha256} when sent."
        )
    command = [
        "tar",
        "--extract",
        "--gzip",
        "--no-same-owner",
        f"--file={package}",
        f"--directory={package.parent}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AnsibleActionFail(f"{package} can't be unpacked: {done.stderr.strip()}")
    package.unlink()


class ActionModule(ActionBase):  # type: ignore[misc] # Ansible has no types
    """See the module's DOCUMENTATION."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pack on the node, fetch, unpack here, remove the package from the node."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        result.update(self._execute_module(module_name="pull_run", task_vars=task_vars))
        if result.get("failed") or self._task.check_mode:
            return result
        destination = Path(self._task.args["dest"])
        destination.mkdir(parents=True, exist_ok=True)
        remote, here = result.pop("package"), destination / "pulled.tar.gz"
        self._connection.fetch_file(remote, str(here))
        unpack(here, result.pop("sha256"))
        self._low_level_execute_command(f"rm --force {shlex.quote(remote)}")
        return result
