#!/usr/bin/python3
"""Ansible module: put a data set that the training user prepared into the store, as root's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.run_places import UnknownUser, as_user, roots_directory

DOCUMENTATION = r"""
---
module: publish_dataset
short_description: Put a data set that the training user prepared into the store, as root's
description:
  - Copies it, so that its files belong to root and nobody else can change them, whatever they were, and packs
    it for the other nodes. Only files and directories are taken, no links.
  - What the user has written is removed, whether or not there is a data set to publish.
  - In check mode, a data set that was prepared as asked counts as there, whatever its source holds by now.
options:
  made: {description: Directory that the user prepares data sets in., type: path, required: true}
  store: {description: Directory of the store that holds data sets., type: path, required: true}
  user: {description: User that prepared it., type: str, required: true}
  answer: {description: File that the preparation ends with a line of JSON., type: path, required: true}
  prepared: {description: Whether the preparation was successful., type: bool, required: true}
  asked: {description: The data's specification., type: dict, required: true}
author: trainbed
"""

EXAMPLES = r"""
- name: Publish the data set
  publish_dataset:
    made: /var/lib/trainbed/prepare/made
    store: /srv/trainbed/artifacts/data
    user: trainbed
    answer: /var/lib/trainbed/prepare/answer.json
    prepared: true
    asked: {data: {source: movie-reviews}}
"""

RETURN = r"""
digest: {description: "The data set's name; empty for none.", type: str, returned: always}
"""

DESCRIPTION: Final = "dataset.json"
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
REQUEST: Final = ("workload", "workload_digest")


class PublishError(Exception):
    """It can't be published; the text is a sentence that says why."""


def announced(answer: Path) -> str:
    """The digest in the last line that the preparation printed.

    Raises:
        PublishError: there is none.
    """
    try:
        digest = json.loads(answer.read_text(encoding="utf-8").splitlines()[-1])["digest"]
    except (ValueError, IndexError, TypeError, KeyError):
        digest = None
    if not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
        raise PublishError(f"The preparation did not end with the digest of a data set: see {answer}.")
    return digest


def copied(made: Path, draft: Path, user: str) -> None:
    """Copy a directory that the user wrote. The user packs it: links lead to no more than it may read.

    Raises:
        PublishError: it can't be read, or holds more than files and directories.
    """
    pack = ["tar", "--create", "--hard-dereference", f"--directory={made}", "."]
    unpack = ["tar", "--extract", "--no-same-owner", "--no-same-permissions", f"--directory={draft}"]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(pack, stdout=subprocess.PIPE, stderr=errors, **as_user(user)) as packer:
            # Leaving the context closes the pipe, so no failure of the one leaves the other waiting.
            unpacked = subprocess.run(unpack, stdin=packer.stdout, stderr=errors, check=False).returncode
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if packer.returncode or unpacked:
        raise PublishError(f"The data set {made} can't be copied: {said}")
    for path in (draft, *sorted(draft.rglob("*"))):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise PublishError(
                f"The data set holds {path.relative_to(draft)}, which is neither a file nor a directory."
            )
        path.chmod(0o755 if path.is_dir() else 0o644)
    if not (draft / DESCRIPTION).is_file():
        raise PublishError(f"There is no data set in {made}, though the preparation named it.")


def packed(dataset: Path) -> None:
    """Pack a data set for the other nodes, its description last: a truncated copy must not look complete."""
    archive = dataset.with_name(f"{dataset.name}.tar")
    draft = dataset.with_name(f"{archive.name}.part")
    files = sorted(path for path in dataset.rglob("*") if path != dataset / DESCRIPTION)
    with tarfile.open(draft, "w") as tar:
        for path in (dataset, *files, dataset / DESCRIPTION):
            tar.add(path, path.relative_to(dataset.parent), recursive=False)
    draft.chmod(0o644)
    draft.replace(archive)


def publish(made: Path, store: Path, digest: str, user: str) -> bool:
    """Copy a data set to the store and pack it, unless it is there; returns whether anything was missing.

    Raises:
        PublishError: it can't be copied.
        UnknownUser: there is no such user.
        OSError: the store can't be written to, or not by root alone.
    """
    dataset, changed = roots_directory(store) / digest, False
    if not (dataset / DESCRIPTION).is_file():
        draft = store / f".{digest}.new"
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir()
        try:
            copied(made / digest, draft, user)
            draft.rename(dataset)
        except BaseException:
            shutil.rmtree(draft)
            raise
        changed = True
    if not dataset.with_name(f"{digest}.tar").exists():
        packed(dataset)
        changed = True
    return changed


def emptied(made: Path) -> None:
    """Remove what the user has written. Root follows no link while it does."""
    if made.is_dir():
        for path in made.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def like_it(store: Path, asked: dict[str, Any]) -> str:
    """The digest of a data set in the store that was prepared as asked; empty for none."""
    wanted = {"spec": asked["data"]} | {name: asked[name] for name in REQUEST if name in asked}
    for path in sorted(store.glob(f"*/{DESCRIPTION}")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not path.parent.name.startswith(".") and wanted == {
            name: value for name, value in found.items() if name in ("spec", *REQUEST)
        }:
            return str(found["digest"])
    return ""


def perform(asked: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Publish what was asked for; returns what the module returns.

    Raises:
        PublishError: it can't be published.
        UnknownUser: there is no such user.
        OSError: something can't be read or written.
    """
    made, store = Path(asked["made"]), Path(asked["store"])
    if check:
        digest = like_it(store, asked["asked"])
        return {"changed": not digest, "digest": digest}
    try:
        digest = announced(Path(asked["answer"])) if asked["prepared"] else ""
        changed = bool(digest) and publish(made, store, digest, asked["user"])
    finally:
        emptied(made)
    return {"changed": changed, "digest": digest}


def main() -> None:
    """Entry point of the module."""
    paths = {name: {"type": "path", "required": True} for name in ("made", "store", "answer")}
    module = AnsibleModule(
        argument_spec={
            **paths,
            "user": {"type": "str", "required": True},
            "prepared": {"type": "bool", "required": True},
            "asked": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    try:
        module.exit_json(**perform(module.params, check=module.check_mode))
    except (PublishError, UnknownUser, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
