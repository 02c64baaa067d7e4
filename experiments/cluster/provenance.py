"""Where the code comes from: its git revision, and whether the tree was dirty."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from experiments.util.git import revision_and_dirty


class Git(BaseModel):
    """The checkout that the controller ran from; None where it is no git checkout or has no commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: str | None = None
    dirty: bool | None = None


def git_state(root: Path) -> Git:
    """The state of the checkout at `root`; all None where there is none (an unpacked archive, no git)."""
    revision, dirty = revision_and_dirty(root)
    return Git(revision=revision, dirty=dirty)
