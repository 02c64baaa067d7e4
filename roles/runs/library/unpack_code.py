#!/usr/bin/python3
"""Ansible module: unpack the training code into a directory, which appears only when complete."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: unpack_code
short_description: Unpack the training code into a directory, which appears only when complete
description:
  - The directory then holds the archive as C(training.zip), and its content as files.
  - If several runs begin at once, the first one's code stays; it is the same for all.
options:
  archive: {description: The code as a zip on this node; it is removed., type: path, required: true}
  path: {description: The directory., type: path, required: true}
author: trainbed
"""

EXAMPLES = r"""
- name: Unpack the code
  unpack_code:
    archive: /srv/trainbed/shared/code/123.zip
    path: /srv/trainbed/shared/code/123
"""


def unpack(archive: Path, path: Path) -> bool:
    """Unpack the archive; returns False if another run's code is already there."""
    draft = archive.with_name(f"{archive.name}.draft")
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir(mode=0o755)
    with zipfile.ZipFile(archive) as content:
        content.extractall(draft)
    archive.rename(draft / "training.zip")
    try:
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft)
        if not (path / "training.zip").exists():
            raise
        return False
    return True


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    archive, path = Path(module.params["archive"]), Path(module.params["path"])
    changed = not path.exists() if module.check_mode else unpack(archive, path)
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
