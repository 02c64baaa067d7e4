"""Who writes where during a run: the training user in its directories, root only where nobody else does."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import Any


class UnknownUser(Exception):
    """A node has no such user; the text is a sentence that names it."""


def as_user(name: str) -> dict[str, Any]:
    """Arguments of subprocess.run that make a command run as a user, given by name or number.

    Raises:
        UnknownUser: there is no such user.
    """
    try:
        account = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        raise UnknownUser(f"This node has no user {name}: provision it first.") from None
    if account.pw_uid == os.geteuid():
        return {}
    # Root's own working directory may be closed to the user.
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}


def roots_directory(path: Path) -> Path:
    """Create a directory with its parents, unless it exists: root writes there, and everyone may read.

    Raises:
        PermissionError: somebody else could put a link there, and have root write where it leads.
    """
    for each in (*reversed(path.parents), path):
        try:
            each.mkdir()
        except FileExistsError:
            found = each.lstat()
        else:
            each.chmod(0o755)  # whatever the umask
            continue
        others = (
            found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX and not stat.S_ISLNK(found.st_mode)
        )
        if others or found.st_uid not in (0, os.geteuid()):
            raise PermissionError(
                f"root must not write to {path}, because others may change {each}: use a directory such as "
                "run_launch_dir, where only root writes."
            )
    return path
