"""Where what runs are made of comes from: revisions of git, and what was not committed."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from experiments.util.files import sha256
from experiments.util.git import MADE_OF, changes_as_patch, revision_and_changes
from experiments.util.models import FrozenModel
from training.settings import Sha256


class Source(FrozenModel):
    """A folder in a git checkout; None if it is in none, or the checkout has no commit."""

    revision: str | None = None
    dirty: bool | None = None  # whether something that counts was not committed
    changed: list[str] = Field(default_factory=list)  # paths of that

    @property
    def text(self) -> str:
        """`0123456789ab with uncommitted changes (roles/runs/vars/main.yml)`."""
        if self.revision is None:
            return "unknown"
        if not self.dirty:
            return self.revision[:12]
        more = len(self.changed) - 3
        named = ", ".join(self.changed[:3]) + (f" and {more} more" if more > 0 else "")
        return f"{self.revision[:12]} with uncommitted changes" + (f" ({named})" if named else "")


class Git(Source):
    """The checkout that the controller ran from, and what lies outside it."""

    patch: Sha256 | None = None  # of the changes; the campaign keeps them
    outside: dict[str, Source] = Field(default_factory=dict)  # inventory, matrix, workload: by what it is


def git_state(root: Path, places: Mapping[str, Path | None] = {}) -> tuple[Git, str]:
    """The git state of what runs are made of, and its uncommitted changes as a patch.

    Args:
        root: the checkout; what does not go into runs may have changed in it.
        places: where the `inventory`, the `matrix` and the user's own `workload` are, if there are any. What
            lies outside the checkout has a state of its own.
    """
    root = root.resolve()
    made_of, found = list(MADE_OF), {}
    for what, path in places.items():
        if path is None:
            continue
        place = path.resolve()
        if place.is_relative_to(root):
            # Records hold what a matrix and an inventory say; of a workload, no more than its digest.
            made_of += [str(place.relative_to(root))] if what == "workload" else []
            continue
        folder, parts = (place, (".",)) if place.is_dir() else (place.parent, (place.name,))
        its_revision, its_changes = revision_and_changes(folder, parts)
        found[what] = _source(its_revision, its_changes)
    revision, changed = revision_and_changes(root, made_of)
    patch = changes_as_patch(root, made_of) if changed else ""
    digest = sha256(patch.encode(errors="surrogateescape")) if patch else None
    return Git(**_source(revision, changed).model_dump(), patch=digest, outside=found), patch


def patch_name(digest: str) -> str:
    """Name of the file in a campaign's folder that keeps a patch."""
    return f"changes-{digest[:12]}.patch"


def inventory_in_use(root: Path) -> Path | None:
    """The inventory that Ansible takes; None if it is not one file or folder."""
    named = os.environ.get("ANSIBLE_INVENTORY")
    if not named:
        settings = configparser.ConfigParser(interpolation=None)
        settings.read(root / "ansible.cfg", encoding="utf-8")
        named = settings.get("defaults", "inventory", fallback="")
    return root / named if named and "," not in named else None


def _source(revision: str | None, changed: list[str] | None) -> Source:
    return Source(revision=revision, dirty=None if changed is None else bool(changed), changed=changed or [])
