#!/usr/bin/python
"""Ansible module: the cluster's names in a hosts file."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: host_names
short_description: Write the cluster's names into a hosts file
description:
  - Keeps a block with the address of every node, first if it is new, since the first line with a name counts.
  - Removes lines for 127.0.1.1, and the nodes' names from lines of other loopback addresses.
  - Everything else stays.
  - A file that does not exist is left alone, such as a template of cloud-init that this distribution lacks.
options:
  path: {description: "The file, or cloud-init's template for it.", type: path, required: true}
  names: {description: "Addresses on the cluster's network, by name.", type: dict, required: true}
"""

EXAMPLES = r"""
- name: Add the names
  host_names:
    path: /etc/hosts
    names: {master: 192.0.2.10, worker1: 192.0.2.11}
"""

RETURN = r"""
"""

BEGIN, END = "# BEGIN nodes of the cluster (trainbed)", "# END nodes of the cluster (trainbed)"
BLOCK = re.compile(rf"^{re.escape(BEGIN)}\n.*?^{re.escape(END)}\n?", re.MULTILINE | re.DOTALL)
OWN = re.compile(r"^127\.0\.1\.1\s.*\n?", re.MULTILINE)
LOOPBACK = re.compile(
    r"^(?P<address>127\.\S+|::1)(?P<names>[ \t]+[^#\n]*)(?P<rest>#.*)?(\n|\Z)", re.MULTILINE
)


def with_names(text: str, names: dict[str, str]) -> str:
    """The file's text with the block, at the place where it was or else first."""
    lines = "".join(f"{address} {name}\n" for name, address in names.items())
    block = f"{BEGIN}\n{lines}{END}\n"
    text = LOOPBACK.sub(lambda found: without(found, names), OWN.sub("", text))
    if BLOCK.search(text):
        return BLOCK.sub(lambda _: block, text, count=1)
    # A template says in its first line that it is one.
    at = text.find("\n") + 1 if text.startswith("## template:") else 0
    return text[:at] + block + text[at:]


def without(line: re.Match[str], names: dict[str, str]) -> str:
    """A line of a loopback address without these names; nothing if it has no other."""
    there = line["names"].split()
    # With or without a domain.
    kept = [name for name in there if name.partition(".")[0] not in names]
    if kept == there:
        return line[0]
    return f"{line['address']}\t{' '.join([*kept, line['rest'] or '']).rstrip()}\n" if kept else ""


def write(path: Path, text: str) -> None:
    """Replace a file's content, with the same owner and mode.

    It is never half there, unless it is a mount of its own, as in a container, which can't be replaced.
    """
    found = path.stat()
    if os.path.ismount(path):
        path.write_text(text, encoding="utf-8")
        return
    number, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
    os.chown(draft, found.st_uid, found.st_gid)
    Path(draft).chmod(found.st_mode & 0o7777)
    Path(draft).replace(path)


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "names": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    if not path.exists():
        module.exit_json(changed=False)
    before = path.read_text(encoding="utf-8")
    after = with_names(before, module.params["names"])
    if after != before and not module.check_mode:
        write(path, after)
    module.exit_json(
        changed=after != before,
        diff={"before": before, "after": after, "before_header": str(path), "after_header": str(path)},
    )


if __name__ == "__main__":
    main()
