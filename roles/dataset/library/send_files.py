#!/usr/bin/python3
"""Ansible module: unpack files and folders. The action of the same name packs and sends them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.file_digests import file_sha256
from ansible.module_utils.run_places import roots_directory

DOCUMENTATION = r"""
---
module: send_files
short_description: Send files and folders to this node, as one archive
description:
  - Sends them only if their names or contents are not those that were sent to the directory before. One by
    one, thousands of images would take minutes.
  - The directory then holds these and nothing else. Everybody may read them.
options:
  root: {description: "Folder on the controller; only for the action.", type: path}
  names:
    description: "Files and folders in O(root), which are sent; only for the action."
    type: list
    elements: str
  dest: {description: Directory on this node; only root may write beside it., type: path, required: true}
  digest: {description: The archive's SHA-256; the action gives it., type: str}
  archive: {description: The archive on this node; the action gives it., type: path}
author: trainbed
"""

EXAMPLES = r"""
- name: Send the images
  send_files:
    root: /home/me/matrices
    names: [images]
    dest: /var/lib/trainbed/prepare/sent/files
"""


def unpack(archive: Path, digest: str, dest: Path) -> None:
    """Replace a directory by what an archive holds, and note which that was.

    Raises:
        ValueError: it was damaged on the way, or can't be unpacked; the text is a sentence.
        OSError: root alone can't write there.
    """
    if (arrived := file_sha256(archive)) != digest:
        raise ValueError(f"{archive} was damaged on the way: its SHA-256 is {arrived}, not {digest}.")
    draft = roots_directory(dest.parent) / f".{dest.name}.new"
    note = note_of(dest)
    note.unlink(missing_ok=True)
    for path in (draft, dest):
        if path.exists():
            shutil.rmtree(path)
    draft.mkdir()
    unpacked = ["tar", "--extract", "--no-same-owner", f"--directory={draft}", f"--file={archive}"]
    done = subprocess.run(unpacked, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        shutil.rmtree(draft)
        raise ValueError(f"What was sent can't be unpacked to {dest}: {done.stderr.strip()}")
    draft.rename(dest)
    note.write_text(f"{digest}\n", encoding="ascii")


def note_of(dest: Path) -> Path:
    """The file that notes what a directory holds."""
    return dest.with_name(f"{dest.name}.sha256")


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path"},
            "names": {"type": "list", "elements": "str"},
            "dest": {"type": "path", "required": True},
            "digest": {"type": "str"},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    dest, digest = Path(module.params["dest"]), module.params["digest"]
    try:
        note = note_of(dest)
        same = dest.is_dir() and note.is_file() and note.read_text(encoding="ascii").strip() == digest
        if module.params["archive"] and not module.check_mode:
            unpack(Path(module.params["archive"]), digest, dest)
            Path(module.params["archive"]).unlink()
    except (ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=not same)


if __name__ == "__main__":
    main()
