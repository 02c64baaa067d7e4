#!/usr/bin/python
"""Ansible module: what must be known of a node, besides its facts, before anything is changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: node_state
short_description: Read a node's packages, and which of some paths it has
description:
  - Sets the facts C(installed_packages) and C(package_lists), from which roles know without asking apt that
    there is nothing to install or update.
options:
  paths: {description: Files and directories to look for., type: list, elements: path, default: []}
"""

EXAMPLES = r"""
- name: Ask for the state of the node
  node_state:
    paths: [/etc/example]
"""

RETURN = r"""
ansible_facts:
  description:
    - installed_packages, the names of all installed packages.
    - package_lists, whether apt has updated its lists within a day.
  type: dict
  returned: always
there: {description: Those of the paths that exist., type: list, elements: str, returned: always}
"""


def installed(listing: str) -> list[str]:
    """Names of the installed packages in dpkg-query's output, those on hold, too."""
    return [
        name
        for state, _, name in (line.partition(" ") for line in listing.splitlines())
        if state in ("ii", "hi")
    ]


def lists_are_fresh(folder: Path = Path("/var/lib/apt/lists"), day: float = 86400) -> bool:
    """Whether apt has updated its lists within a day.

    Judged by the lists themselves: an interrupted update leaves a fresh time stamp but no lists.
    """
    lists = [*folder.glob("*_Packages"), *folder.glob("*_Packages.lz4")]
    return any(time.time() - path.stat().st_ctime < day for path in lists)


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={"paths": {"type": "list", "elements": "path", "default": []}}, supports_check_mode=True
    )
    packages: list[str] = []
    if dpkg := module.get_bin_path("dpkg-query"):
        _, listing, _ = module.run_command(
            [dpkg, "--show", "--showformat", "${db:Status-Abbrev}${Package}\\n"], check_rc=True
        )
        packages = installed(listing)
    module.exit_json(
        changed=False,
        ansible_facts={"installed_packages": packages, "package_lists": lists_are_fresh()},
        there=[path for path in module.params["paths"] if os.path.lexists(path)],
    )


if __name__ == "__main__":
    main()
