"""Action plugin: send files and folders to a node as one archive. The module of the same name unpacks it."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

BLOCK = 1 << 20


def listed(root: Path, name: str, above: tuple[tuple[int, int], ...] = ()) -> Iterator[str]:
    """The name of a file or folder and of all that is in it, in order; links count as what they lead to.

    Raises:
        AnsibleActionFail: a link leads to nothing, or back to a folder that it is in.
    """
    path = root / name
    try:
        about = path.stat()
    except OSError as error:
        raise AnsibleActionFail(f"{path} can't be read: {error.strerror}.") from error
    if (place := (about.st_dev, about.st_ino)) in above:
        raise AnsibleActionFail(f"{path} is a link to a folder that it is in: remove it.")
    yield name
    if path.is_dir():
        for each in sorted(entry.name for entry in path.iterdir()):
            yield from listed(root, f"{name}/{each}", (*above, place))


class Hashed:
    """Where an archive is written to: its SHA-256, and a file if there is one."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._file, self._sha = file, hashlib.sha256()

    def write(self, block: bytes) -> int:
        """Take a block."""
        self._sha.update(block)
        return self._file.write(block) if self._file else len(block)

    @property
    def digest(self) -> str:
        """Of all that was written."""
        return self._sha.hexdigest()


def packed(root: Path, names: list[str], to: Hashed) -> None:
    """Write an archive that only names and contents decide, bit by bit.

    Raises:
        AnsibleActionFail: something can't be read, or its name leads out of `root`.
    """
    with tarfile.open(
        fileobj=cast("Any", to), mode="w|", bufsize=BLOCK, format=tarfile.PAX_FORMAT
    ) as archive:
        for name in sorted(set(names)):
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise AnsibleActionFail(f"{name} is not below {root}: put it there, beside the matrix.")
            for each in listed(root, PurePosixPath(name).as_posix()):
                path, entry = root / each, tarfile.TarInfo(each)
                try:
                    if path.is_dir():
                        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                        archive.addfile(entry)
                    elif path.is_file():
                        with path.open("rb") as content:
                            entry.size, entry.mode = os.fstat(content.fileno()).st_size, 0o644
                            archive.addfile(entry, content)
                except OSError as error:
                    raise AnsibleActionFail(f"{path} can't be read: {error.strerror or error}.") from error


class ActionModule(ActionBase):  # type: ignore[misc] # Ansible has no types
    """See the module's DOCUMENTATION."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Hash what there is; send it only if the node has something else."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        root, names, dest = (self._task.args[name] for name in ("root", "names", "dest"))
        known = Hashed()
        packed(Path(root), names, known)
        asked = {"dest": dest, "digest": known.digest}
        result.update(self._execute_module("send_files", asked, task_vars=task_vars))
        if result.get("failed") or not result["changed"] or self._task.check_mode:
            return result
        with tempfile.NamedTemporaryFile(prefix="trainbed-files-", suffix=".tar") as file:
            sent = Hashed(file.file)
            packed(Path(root), names, sent)
            file.flush()
            remote = self._connection._shell.join_path(self._make_tmp_path(), "files.tar")
            self._transfer_file(file.name, remote)
        asked = {"dest": dest, "digest": sent.digest, "archive": remote}
        result.update(self._execute_module("send_files", asked, task_vars=task_vars))
        return result
