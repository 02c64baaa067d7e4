"""Where the code comes from: its git revision, and whether the tree was dirty."""

from __future__ import annotations

from pathlib import Path

from experiments.util.git import revision_and_dirty
from experiments.util.models import FrozenModel


class Git(FrozenModel):
    """The checkout that the controller ran from; None if it is not a git checkout or has no commit."""

    revision: str | None = None
    dirty: bool | None = None


def git_state(root: Path) -> Git:
    """The git state of `root`; all None if it is not a checkout (an unpacked archive, no git)."""
    revision, dirty = revision_and_dirty(root)
    return Git(revision=revision, dirty=dirty)
