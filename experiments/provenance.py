"""Where the code comes from: its git revision, and whether the tree was dirty."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Git(BaseModel):
    """The checkout that the controller ran from; None where it is no git checkout or has no commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: str | None = None
    dirty: bool | None = None


def git_state(root: Path) -> Git:
    """The state of the checkout at `root`; all None where there is none (an unpacked archive, no git)."""
    revision = _git(root, "rev-parse", "--verify", "HEAD")
    status = _git(root, "status", "--porcelain", "--", ".")
    return Git(
        revision=revision.strip() if revision is not None else None,
        dirty=bool(status.strip()) if status is not None else None,
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
