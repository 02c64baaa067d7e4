#!/usr/bin/python
"""Ansible module: write many small files at once, each only if it differs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: settings_files
short_description: Write a set of small private files
description:
  - Writes files with the mode 0600 in directories with the mode 0700, all in one call.
  - Each file is written under a temporary name and renamed, and only if it differs from the existing one.
  - The top directories of the names are to hold these files alone; any other file in them is removed.
options:
  path:
    description: Directory that the names are relative to.
    type: path
    required: true
  contents:
    description: Text of each file, by its name.
    type: dict
    default: {}
  copies:
    description: File on the same machine to copy each file from, by its name.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Write what a node reads
  settings_files:
    path: /var/lib/example
    contents:
      nodes/worker1/link: "198.18.0.11 1gbit\n"
    copies:
      nodes/worker1/authorized_keys: /var/lib/example/ssh/login.pub
"""

RETURN = r"""
written: {description: Names of the files that were written., type: list, returned: always}
removed: {description: Names of the files that were removed., type: list, returned: always}
"""


def wanted_files(contents: dict[str, str], copies: dict[str, str]) -> dict[str, bytes]:
    """Wanted content of every file, by its name."""
    files = {name: text.encode() for name, text in contents.items()}
    return files | {name: Path(source).read_bytes() for name, source in copies.items()}


def write(path: Path, content: bytes) -> None:
    """Write a private file under a temporary name, then rename it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(beside).rename(path)


def differs(path: Path, content: bytes) -> bool:
    """Whether a file is missing, or has another content or mode."""
    return not path.is_file() or path.stat().st_mode & 0o777 != 0o600 or path.read_bytes() != content


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "contents": {"type": "dict", "default": {}, "no_log": True},
            "copies": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    root = Path(module.params["path"])
    files = wanted_files(module.params["contents"], module.params["copies"])
    there = [
        file
        for top in sorted({Path(name).parts[0] for name in files})
        for file in sorted((root / top).rglob("*"))
        if not file.is_dir()
    ]
    removed = [str(file.relative_to(root)) for file in there if str(file.relative_to(root)) not in files]
    written = [name for name, content in files.items() if differs(root / name, content)]
    if not module.check_mode:
        for name in removed:
            (root / name).unlink()
        for name in written:
            write(root / name, files[name])
    module.exit_json(changed=bool(written or removed), written=written, removed=removed)


if __name__ == "__main__":
    main()
