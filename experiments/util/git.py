"""The git state of a folder. Standard library only: Ansible's plugins import it under any Python."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: What runs are made of, in trainbed's checkout; whatever else has changed there can't affect one.
#: (The locks of the environment are in a role.)
MADE_OF: Final = ("training", "roles", "playbooks", "ansible.cfg")


def revision_and_changes(folder: Path, parts: Sequence[str] = (".",)) -> tuple[str | None, list[str] | None]:
    """The commit that is checked out, and the paths with uncommitted changes; None where git can't tell.

    Args:
        folder: a checkout, or a folder in one.
        parts: the files and folders in it whose changes count.
    """
    revision = _git(folder, "rev-parse", "--verify", "HEAD")
    status = _git(
        folder, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *parts
    )
    return (
        revision.strip() if revision is not None else None,
        sorted(entry[3:] for entry in status.split("\0") if entry) if status is not None else None,
    )


def changes_as_patch(folder: Path, parts: Sequence[str] = (".",)) -> str:
    """The uncommitted changes as a patch for `git apply`, files that git does not know included."""
    texts = [_git(folder, "diff", "--binary", "--relative", "HEAD", "--", *parts) or ""]
    unknown = _git(folder, "ls-files", "-z", "--others", "--exclude-standard", "--", *parts) or ""
    for name in sorted(filter(None, unknown.split("\0"))):
        # Files that differ are its exit code 1.
        texts.append(
            _git(folder, "diff", "--binary", "--no-index", "--", "/dev/null", name, fine=(0, 1)) or ""
        )
    return "".join(texts)


def _git(folder: Path, *arguments: str, fine: Sequence[int] = (0,)) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode in fine else None
