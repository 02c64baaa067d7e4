"""Lookup plugin: what may be left of a stack's runs on a node, as the stack's role declares it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ansible import constants as C
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: stack_leftovers
short_description: What may be left of runs of these stacks on a node
description:
  - Returns for each stack a dict with its name, the units, containers and processes that its
    C(meta/stack.yml) declares for the groups of the node, and whether its role has a C(tasks/stop.yml).
options:
  _terms: {description: Names of stacks., required: true}
"""

KINDS: Final = ("units", "containers", "processes")


def role_of(stack: str, folders: list[str]) -> Path:
    """Directory of the stack's role.

    Raises:
        AnsibleLookupError: there is none.
    """
    found = [Path(folder) / stack for folder in folders if (Path(folder) / stack / "tasks").is_dir()]
    if not found:
        raise AnsibleLookupError(f"There is no role for the stack {stack} in {', '.join(folders)}.")
    return found[0]


def leftovers(role: Path, declared: dict[str, Any], groups: list[str]) -> dict[str, Any]:
    """What may be left of the role's stack on a node of these groups."""
    found: dict[str, Any] = {"stack": role.name, "stops": (role / "tasks" / "stop.yml").is_file()}
    for kind in KINDS:
        found[kind] = sorted({each for group in groups for each in declared.get(group, {}).get(kind, [])})
    return found


class LookupModule(LookupBase):  # type: ignore[misc] # Ansible has no types
    """See DOCUMENTATION."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002 - Ansible's
        """Answer for each stack."""
        folders = [str(Path(variables["playbook_dir"]) / "roles"), *C.DEFAULT_ROLES_PATH]
        answer = []
        for role in [role_of(stack, folders) for stack in dict.fromkeys(terms)]:
            path = role / "meta" / "stack.yml"
            declared = self._loader.load_from_file(str(path)) if path.is_file() else {}
            answer.append(leftovers(role, declared, variables["group_names"]))
        return answer
