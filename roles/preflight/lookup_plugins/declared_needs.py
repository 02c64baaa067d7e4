"""Lookup plugin: what roles need of a node, as each declares it in meta/needs.yml, and stacks' ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ansible import constants as C
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: declared_needs
short_description: What the roles that set up a cluster need of a node of these groups
description:
  - Returns one dict with the lists C(disk), C(memory) and C(ports), from the C(meta/needs.yml) of every role
    that is no stack and of the given stacks, and the ports in the C(meta/stack.yml) of these stacks; and
    C(names), the variables that entries refer to; and C(services), those of these stacks in these groups.
options:
  _terms: {description: Names of stacks., required: true}
  groups: {description: Groups of the node., type: list, elements: str, required: true}
"""

KINDS: Final = ("disk", "memory", "ports")


def roles(folders: list[str], stacks: list[str]) -> list[Path]:
    """The roles whose needs count; of roles with the same name, the first.

    Raises:
        AnsibleLookupError: a stack has no role.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        for tasks in sorted(Path(folder).glob("*/tasks")):
            found.setdefault(tasks.parent.name, tasks.parent)
    for stack in stacks:
        if stack not in found:
            raise AnsibleLookupError(f"There is no role for the stack {stack} in {', '.join(folders)}.")
    return [
        role for name, role in found.items() if name in stacks or not (role / "tasks" / "run.yml").is_file()
    ]


def of_groups(entries: list[dict[str, Any]], groups: list[str]) -> list[dict[str, Any]]:
    """The entries for a node of these groups; an entry without `group` is for every node."""
    return [each for each in entries if each.get("group", groups[0]) in groups]


def ports(declared: dict[str, Any], groups: list[str]) -> list[dict[str, Any]]:
    """The ports that a stack's services listen on, each with these services."""
    found = []
    for group in groups:
        on_node = declared.get(group) or {}
        found += [{**port, "services": on_node.get("services", [])} for port in on_node.get("ports", [])]
    return found


def names(entry: dict[str, Any]) -> list[str]:
    """The variables that an entry refers to."""
    refers = [entry[key] for key in ("when", "path_of", "port") if key in entry]
    return [*refers, *entry.get("moved_by", {})]


class LookupModule(LookupBase):  # type: ignore[misc] # Ansible has no types
    """See DOCUMENTATION."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[Any]:
        """Answer with one dict."""
        groups = [str(group) for group in kwargs["groups"]]
        folders = [str(Path(variables["playbook_dir"]) / "roles"), *C.DEFAULT_ROLES_PATH]
        found: dict[str, Any] = {kind: [] for kind in (*KINDS, "services")}
        for role in roles(folders, list(terms)):
            needs = self._read(role / "meta" / "needs.yml")
            for kind in KINDS:
                found[kind] += [
                    {"role": role.name, **each} for each in of_groups(needs.get(kind, []), groups)
                ]
            if role.name in terms:
                stack = self._read(role / "meta" / "stack.yml")
                found["ports"] += [{"role": role.name, **each} for each in ports(stack, groups)]
                found["services"] += [
                    each for group in groups for each in (stack.get(group) or {}).get("services", [])
                ]
        entries = [entry for kind in KINDS for entry in found[kind]]
        return [found | {"names": sorted({name for entry in entries for name in names(entry)})}]

    def _read(self, path: Path) -> dict[str, Any]:
        return (self._loader.load_from_file(str(path)) or {}) if path.is_file() else {}
