#!/usr/bin/python
"""Ansible module: let the cluster's nodes through this node's ufw."""

from __future__ import annotations

import re

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: ufw_peers
short_description: Let the cluster's nodes through this node's ufw
description:
  - If ufw is active, adds a rule named C(trainbed) for each of these, and deletes other such rules.
  - Executors and ranks listen on random ports, so that a rule for each port would not do.
  - If ufw is not active, does nothing.
options:
  addresses: {description: Addresses of the other nodes., type: list, elements: str, required: true}
  interfaces:
    description: This node's own networks of containers, from which they reach its services.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Let the nodes through
  ufw_peers:
    addresses: [192.0.2.11, 192.0.2.12]
"""

RETURN = r"""
active: {description: Whether ufw is active., type: bool, returned: always}
rules: {description: Rules that were added or deleted., type: list, elements: str, returned: always}
"""

NAME = "trainbed"
RULE = re.compile(rf"^ufw allow ((?:from|in on) \S+) comment '{NAME}'$", re.MULTILINE)


def changes(added: str, wanted: list[str]) -> list[list[str]]:
    """Arguments of ufw, one list for each rule that is missing or not wanted any more.

    Args:
        added: what `ufw show added` prints.
        wanted: whom to allow, as in `from 192.0.2.11` or `in on docker0`.
    """
    found = RULE.findall(added)
    missing = [["allow", *whom.split(), "comment", NAME] for whom in wanted if whom not in found]
    return missing + [["delete", "allow", *whom.split()] for whom in found if whom not in wanted]


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "addresses": {"type": "list", "elements": "str", "required": True},
            "interfaces": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    ufw = module.get_bin_path("ufw", required=True)
    plain = {"LC_ALL": "C"}
    _, status, _ = module.run_command([ufw, "status"], check_rc=True, environ_update=plain)
    active = status.startswith("Status: active")
    rules: list[list[str]] = []
    if active:
        _, added, _ = module.run_command([ufw, "show", "added"], check_rc=True, environ_update=plain)
        wanted = [f"from {address}" for address in module.params["addresses"]]
        rules = changes(added, wanted + [f"in on {name}" for name in module.params["interfaces"]])
    if not module.check_mode:
        for rule in rules:
            module.run_command([ufw, *rule], check_rc=True, environ_update=plain)
    module.exit_json(changed=bool(rules), active=active, rules=[" ".join(rule) for rule in rules])


if __name__ == "__main__":
    main()
