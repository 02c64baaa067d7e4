#!/usr/bin/python
"""Ansible module: take or release the cluster's lock file."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: cluster_lock_file
short_description: Take or release the cluster's lock file
description:
  - The file is created exclusively and with its whole content, so that only one of two takers gets it.
  - Never reports a change, since a lock is gone again when its verb ends.
options:
  path: {description: The lock file., type: path, required: true}
  state: {description: What to do., type: str, choices: [taken, free], required: true}
  holder: {description: Who takes or releases it., type: dict, default: {}}
  replaces: {description: "A holder known to be gone, whose lock may be taken over.", type: dict}
"""

EXAMPLES = r"""
- name: Take the lock
  cluster_lock_file:
    path: /var/lib/trainbed/lock
    state: taken
    holder: {host: controller, pid: 4711, verb: provision}
"""

RETURN = r"""
holder: {description: "Who holds the lock afterwards, {} for nobody.", type: dict, returned: always}
mine: {description: Whether that is the given holder., type: bool, returned: always}
"""

# Not the host name: provisioning changes it where the controller is a node itself.
IDENTITY = ("boot", "pid", "started")


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two holders are the same process."""
    return all(str(one.get(key)) == str(other.get(key)) for key in IDENTITY)


def read(path: Path) -> dict[str, Any]:
    """Read the lock file; {} if there is none. If it cannot be parsed, its holder is unknown."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        holder = json.loads(text)
    except json.JSONDecodeError:
        holder = None
    if not isinstance(holder, dict):
        return {"host": "?", "user": "?", "pid": 0, "verb": f"an unreadable lock file {path}", "since": "?"}
    return holder


def create(path: Path, holder: dict[str, Any]) -> bool:
    """Create the lock file exclusively, with its whole content; False if somebody was faster."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(holder, sort_keys=True) + "\n", encoding="utf-8")
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["taken", "free"], "required": True},
            "holder": {"type": "dict", "default": {}},
            "replaces": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    me = module.params["holder"]
    held = read(path)
    if not module.check_mode and module.params["state"] == "taken":
        if module.params["replaces"] and held and same(held, module.params["replaces"]):
            path.unlink()
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017 - Python 3.10 nodes
        create(path, {**me, "since": now})
        held = read(path)
    elif not module.check_mode and module.params["state"] == "free" and held and same(held, me):
        path.unlink()
        held = {}
    module.exit_json(changed=False, holder=held, mine=bool(held) and same(held, me))


if __name__ == "__main__":
    main()
