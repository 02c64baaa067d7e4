"""Where what runs are made of comes from: revisions of git, and what was not committed."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import Field

from experiments.util.files import sha256
from experiments.util.git import MADE_OF, changes_as_patch, checkout_of, revision_and_changes
from experiments.util.models import FrozenModel
from training.settings import Sha256

#: What runs are made of, wherever it is, with the parts that are. Of inventories and matrices, records hold
#: what goes into a run; of these, no more than digests.
GOES_INTO_RUNS: Final[Mapping[str, Sequence[str]]] = {
    "workload": (".",),
    "locks": (".",),
    "stacks": ("roles", "training"),
}
#: Git ignores an inventory in the checkout (inventory/mine), and with it the locks.
UNIGNORED: Final = ("locks",)
LOCK: Final = "lock"  # files of a campaign's folder whose names begin so are locks


class Source(FrozenModel):
    """A folder in a git checkout; None if it is in none, or the checkout has no commit."""

    revision: str | None = None
    dirty: bool | None = None  # whether something that counts was not committed
    changed: list[str] = Field(default_factory=list)  # paths of that
    patch: Sha256 | None = None  # of the changes, where runs are made of them; the campaign keeps it

    @property
    def text(self) -> str:
        """`0123456789ab with uncommitted changes (roles/runs/vars/main.yml)`."""
        if self.revision is None:
            return "unknown"
        if self.dirty is None:
            return f"{self.revision[:12]} with unknown changes"
        if not self.dirty:
            return self.revision[:12]
        more = len(self.changed) - 3
        named = ", ".join(self.changed[:3]) + (f" and {more} more" if more > 0 else "")
        return f"{self.revision[:12]} with uncommitted changes" + (f" ({named})" if named else "")


class Git(Source):
    """The checkout that the controller ran from, and what lies outside it."""

    outside: dict[str, Source] = Field(default_factory=dict)  # inventory, matrix, workload: by what it is

    @property
    def patches(self) -> list[str]:
        """The digests of all changes that the campaign keeps."""
        return [each.patch for each in (self, *self.outside.values()) if each.patch is not None]


def git_state(root: Path, places: Mapping[str, Path | None] = {}) -> tuple[Git, dict[str, bytes]]:
    """The git state of what runs are made of, and its uncommitted changes as patches, by their digests.

    Args:
        root: the checkout; what does not go into runs may have changed in it.
        places: where the `inventory`, its `locks`, the `matrix`, the user's own `workload` and `stacks` are,
            if there are any. What lies outside the checkout has a state of its own.

    Raises:
        UserError: the uncommitted changes can't be kept.
    """
    root = root.resolve()
    top = checkout_of(root)
    made_of, unignored = list(MADE_OF), list[str]()
    outside, patches = dict[str, Source](), dict[str, bytes]()
    for what, path in places.items():
        if path is None:
            continue
        place = path.resolve()
        folder, name = (place, ".") if place.is_dir() else (place.parent, place.name)
        parts = GOES_INTO_RUNS.get(what, (name,))
        without_git = parts if what in UNIGNORED else ()
        if place.is_relative_to(root) and checkout_of(folder) == top:
            within = place.relative_to(root)
            made_of += [str(within / part) for part in GOES_INTO_RUNS.get(what, ())]
            unignored += [str(within / part) for part in without_git]
        elif what in GOES_INTO_RUNS:
            outside[what] = _judged(folder, parts, without_git, patches)
        else:
            outside[what] = _judged(folder, parts)
    state = _judged(root, made_of, unignored, patches)
    return Git(**state.model_dump(), outside=outside), patches


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


def locks_of(inventory: Path | None) -> Path | None:
    """The folder of an inventory's own locks; None if it has none."""
    if inventory is None:
        return None
    folder = (inventory if inventory.is_dir() else inventory.parent) / "locks"
    return folder if folder.is_dir() else None


def kept_locks(locks: Path | None) -> dict[str, bytes]:
    """An inventory's own locks, by the names of the files in a campaign's folder that keep them.

    They are kept whatever git says: such an inventory may be in no checkout, and a later `make lock` writes
    over its locks. A name has the lock's digest, so the campaign's folder may have several of one lock.
    """
    if locks is None:
        return {}
    found = {}
    for path in sorted(locks.rglob("*.txt")):
        content = path.read_bytes()
        name = "-".join(path.relative_to(locks).with_suffix("").parts)
        found[f"{LOCK}-{name}-{sha256(content)[:12]}.txt"] = content
    return found


def _judged(
    folder: Path,
    parts: Sequence[str],
    unignored: Sequence[str] = (),
    patches: dict[str, bytes] | None = None,
) -> Source:
    """The state of some parts of a folder; a patch of their changes is added to `patches`, if given."""
    revision, changed = revision_and_changes(folder, parts, unignored)
    digest = None
    if patches is not None and revision is not None and changed:
        patch = changes_as_patch(folder, parts, unignored)
        digest = sha256(patch)
        patches[digest] = patch
    dirty = None if changed is None else bool(changed)
    return Source(revision=revision, dirty=dirty, changed=changed or [], patch=digest)
