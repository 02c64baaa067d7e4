#!/usr/bin/python
"""Ansible module: the files, directories and links of a role, in one call."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: node_files
short_description: Write files, directories and links in one call
description:
  - Does in one call what C(copy), C(file) and C(template) do in two calls for each item.
  - A file gets its content, owner and mode under a temporary name and is then renamed.
options:
  files:
    description: Entries, in the order in which they are made.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: Its path., type: path, required: true}
      state: {description: Its kind., type: str, choices: [file, directory, link, absent], default: file}
      content: {description: Text of a file., type: str}
      target: {description: Target of a link., type: path}
      owner: {description: User that owns it, by name or number., type: str, default: root}
      group: {description: Group that owns it, by name or number., type: str, default: root}
      mode: {description: "Mode in octal; by default 0644, and 0755 for a directory.", type: str}
      keep: {description: Whether an existing file keeps its content., type: bool, default: false}
      backup:
        description: Whether to keep a replaced file that trainbed did not write beside the new one.
        type: bool
        default: false
"""

EXAMPLES = r"""
- name: Configure the service
  node_files:
    files:
      - {path: /etc/example, state: directory}
      - {path: /etc/example/main.conf, content: "{{ lookup('ansible.builtin.template', 'main.conf.j2') }}"}
"""

RETURN = r"""
paths: {description: Paths that were changed., type: list, elements: str, returned: always}
"""

WRITTEN = ("Ansible managed", "Written by trainbed")
MODES = {"file": 0o644, "directory": 0o755}


class Entry:
    """One file, directory or link as it should be."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.path = Path(wanted["path"])
        self.state: str = wanted["state"]
        self.content = (wanted["content"] or "").encode()
        self.target: str | None = wanted["target"]
        self.names = wanted["owner"], wanted["group"]
        self.mode = int(wanted["mode"], 8) if wanted["mode"] else MODES.get(self.state, 0o777)
        self.keep: bool = wanted["keep"]
        self.backup: bool = wanted["backup"]

    def ids(self) -> tuple[int, int]:
        """Numeric ids of its owner and group.

        Raises:
            KeyError: there is no such user or group.
        """
        owner, group = self.names
        return (
            int(owner) if owner.isdigit() else pwd.getpwnam(owner).pw_uid,
            int(group) if group.isdigit() else grp.getgrnam(group).gr_gid,
        )

    def differs(self) -> bool:
        """Whether its kind, content or target is wrong."""
        there = os.path.lexists(self.path)
        if self.state == "absent":
            return there
        if self.state == "directory":
            return not self.path.is_dir()
        if self.state == "link":
            return not self.path.is_symlink() or str(self.path.readlink()) != self.target
        if not self.path.is_file():
            return True
        return not self.keep and self.path.read_bytes() != self.content

    def loose(self) -> bool:
        """Whether its owner, group or mode is wrong."""
        if self.state in ("absent", "link"):
            return False
        found = self.path.stat()
        return (found.st_uid, found.st_gid) != self.ids() or stat.S_IMODE(found.st_mode) != self.mode

    def make(self) -> None:
        """Create, replace or remove it."""
        if self.state == "absent":
            self.path.unlink()
        elif self.state == "directory":
            self.path.mkdir(parents=True)
        else:
            draft = Path(tempfile.mkdtemp(dir=self.path.parent, prefix=".new-"))
            try:
                self._write(draft / "new")
                (draft / "new").replace(self.path)
            finally:
                shutil.rmtree(draft)

    def tighten(self) -> None:
        """Set its owner, group and mode."""
        os.chown(self.path, *self.ids())
        self.path.chmod(self.mode)

    def text(self) -> str:
        """Its present content, for a diff."""
        return self.path.read_bytes().decode(errors="replace") if self.path.is_file() else ""

    def _write(self, path: Path) -> None:
        if self.state == "link":
            path.symlink_to(str(self.target))
            return
        path.touch(mode=0o600)
        path.write_bytes(self.content)
        os.chown(path, *self.ids())
        path.chmod(self.mode)


def apply(module: AnsibleModule, entry: Entry) -> dict[str, str] | None:
    """Make one entry as it should be; returns its diff, or None if nothing had to change."""
    differs = entry.differs()
    if not differs and not entry.loose():
        return None
    before = entry.text()
    if not module.check_mode:
        if differs:
            if entry.backup and entry.path.is_file() and not any(said in before for said in WRITTEN):
                module.backup_local(str(entry.path))
            entry.make()
        if os.path.lexists(entry.path) and entry.loose():
            entry.tighten()
    after = entry.content.decode() if differs and entry.state == "file" else before
    return {
        "before_header": str(entry.path),
        "after_header": f"{entry.path} ({entry.state})",
        "before": before,
        "after": after if entry.state != "absent" else "",
    }


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "state": {
                        "type": "str",
                        "choices": ["file", "directory", "link", "absent"],
                        "default": "file",
                    },
                    "content": {"type": "str"},
                    "target": {"type": "path"},
                    "owner": {"type": "str", "default": "root"},
                    "group": {"type": "str", "default": "root"},
                    "mode": {"type": "str"},
                    "keep": {"type": "bool", "default": False},
                    "backup": {"type": "bool", "default": False},
                },
                "required_if": [("state", "file", ["content"]), ("state", "link", ["target"])],
            }
        },
        supports_check_mode=True,
    )
    paths: list[str] = []
    diff: list[dict[str, str]] = []
    for wanted in module.params["files"]:
        try:
            change = apply(module, Entry(wanted))
        except (OSError, KeyError, ValueError) as error:
            module.fail_json(msg=f"{wanted['path']}: {error}", paths=paths)
        if change is not None:
            paths.append(wanted["path"])
            diff.append(change)
    module.exit_json(changed=bool(paths), paths=paths, diff=diff)


if __name__ == "__main__":
    main()
