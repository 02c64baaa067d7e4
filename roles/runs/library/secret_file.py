#!/usr/bin/python3
"""Ansible module: a file with a random secret, made once."""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: secret_file
short_description: A file with a random secret, made once
description:
  - A file that is there and not empty stays as it is. The secret is never returned or printed.
options:
  path: {description: The file; only root can read it., type: path, required: true}
  bytes: {description: How many random bytes it holds., type: int, default: 32}
  encoding: {description: How they are written., type: str, choices: [base64, hex], default: base64}
  prefix: {description: What stands before them., type: str, default: ""}
author: trainbed
"""

EXAMPLES = r"""
- name: Make the secret
  secret_file:
    path: /etc/trainbed/toy/secret
"""

RETURN = r"""
"""


def make(path: Path, length: int, encoding: str, prefix: str) -> None:
    """Write a new secret: beside, then renamed."""
    random = secrets.token_bytes(length)
    text = base64.b64encode(random).decode() if encoding == "base64" else random.hex()
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as file:
        file.write(f"{prefix}{text}")
    draft.replace(path)


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "bytes": {"type": "int", "default": 32},
            "encoding": {"type": "str", "choices": ["base64", "hex"], "default": "base64"},
            "prefix": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    asked = module.params
    path = Path(asked["path"])
    changed = not path.exists() or path.stat().st_size == 0
    if changed and not module.check_mode:
        make(path, asked["bytes"], asked["encoding"], asked["prefix"])
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
