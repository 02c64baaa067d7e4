"""The git state of a checkout. Standard library only: Ansible's plugins import it under any Python."""

from __future__ import annotations

import subprocess
from pathlib import Path


def revision_and_dirty(root: Path) -> tuple[str | None, bool | None]:
    """The commit of the checkout at `root`, and whether its tree is dirty; None where git can't tell."""
    revision = _git(root, "rev-parse", "--verify", "HEAD")
    status = _git(root, "status", "--porcelain", "--", ".")
    return (
        revision.strip() if revision is not None else None,
        bool(status.strip()) if status is not None else None,
    )


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
