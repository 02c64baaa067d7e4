"""Action plugin: fetch what a run left on a node, in one go. The module of the same name packs it."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


def keep(content: IO[bytes], path: Path, *, by_root: bool) -> None:
    """Write a file; if both root and the training user have left one of that name, root's stays.

    Other nodes' packages are unpacked at the same time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if by_root:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with draft.open("wb") as file:
            shutil.copyfileobj(content, file)
        draft.replace(path)
        return
    try:
        file = path.open("xb")
    except FileExistsError:
        return
    with file:
        shutil.copyfileobj(content, file)


def unpack(package: Path, sha256: str, destination: Path) -> list[str]:
    """Unpack a package, and remove it; returns the names of what is neither a file nor a directory.

    Raises:
        AnsibleActionFail: it was damaged on the way, or can't be unpacked.
    """
    with package.open("rb") as file:
        arrived = hashlib.file_digest(file, "sha256").hexdigest()
    if arrived != sha256:
        raise AnsibleActionFail(
            f"{package} was damaged on the way: its SHA-256 is {arrived}, but was {sha256} when sent."
        )
    left = []
    try:
        # The package is two archives in a row: what lies between them is ignored.
        with tarfile.open(package, "r:gz", ignore_zeros=True) as archive:
            for member in archive:
                kind, *parts = PurePosixPath(member.name).parts
                if ".." in parts or kind not in ("run", "launch"):
                    raise AnsibleActionFail(f"{package} holds the name {member.name}, which leads out of it.")
                path = destination.joinpath(*parts)
                # As no link is ever made, nothing leads out of the destination.
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif (content := archive.extractfile(member) if member.isreg() else None) is not None:
                    keep(content, path, by_root=kind == "launch")
                else:
                    left.append("/".join(parts))
    except (OSError, tarfile.TarError, EOFError) as error:
        raise AnsibleActionFail(f"{package} can't be unpacked: {error}") from error
    package.unlink()
    return left


class ActionModule(ActionBase):  # type: ignore[misc] # Ansible has no types
    """See the module's DOCUMENTATION."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pack on the node, fetch, unpack here, remove from the node what is no longer needed there."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked = self._task.args
        # Most stacks leave nothing on most nodes, and a look is cheaper than a module.
        if not self._task.check_mode and not asked.get("run_dir") and self._lacks(asked["launch_dir"]):
            return result | {"changed": False, "pulled": []}
        result.update(self._execute_module(module_name="pull_run", task_vars=task_vars))
        if result.get("failed") or "package" not in result:
            return result
        destination = Path(asked["dest"])
        destination.mkdir(parents=True, exist_ok=True)
        node = str((task_vars or {})["inventory_hostname"])
        remote, here = result.pop("package"), destination / f".pulled-{node}.tar.gz"
        self._connection.fetch_file(remote, str(here))
        left = unpack(here, result.pop("sha256"), destination)
        warnings = [f"Not fetched, as they are no files: {', '.join(left)}."] if left else []
        warnings += self._remove(remote, asked["launch_dir"])
        return result | {"warnings": [*result.get("warnings", []), *warnings], "left": left}

    def _lacks(self, directory: str) -> bool:
        """Whether the node has no such directory."""
        look = self._low_level_execute_command(shlex.join(["test", "-d", directory]))
        return bool(look["rc"] == 1)

    def _remove(self, package: str, launch_dir: str) -> list[str]:
        """Remove from the node what was unpacked here; returns a warning if that failed."""
        both = shlex.join(["rm", "--recursive", "--force", "--", package, launch_dir])
        # Other attempts at this run may have theirs beside it.
        above = shlex.join(["rmdir", "--ignore-fail-on-non-empty", "--", str(PurePosixPath(package).parent)])
        done = self._low_level_execute_command(f"{both} && {above}")
        return [f"{launch_dir} can't be removed: {done['stderr'].strip()}"] if done["rc"] else []
