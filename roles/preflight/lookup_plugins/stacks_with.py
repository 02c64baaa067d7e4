"""Lookup plugin: the stacks whose role has a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ansible import constants as C
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: stacks_with
short_description: Names of the stacks whose role has a file, wherever the role is
options:
  _terms: {description: "Paths within a role, such as C(tasks/forget.yml).", required: true}
"""

#: What makes a role a stack.
LAUNCHES: Final = Path("tasks/run.yml")


def stacks_with(folders: list[str], file: str) -> list[str]:
    """Names of the stacks in these folders of roles that have `file`; of the same name, the first counts."""
    found: dict[str, Path] = {}
    for folder in folders:
        for launches in sorted(Path(folder).glob(f"*/{LAUNCHES}")):
            role = launches.parents[1]
            found.setdefault(role.name, role)
    return sorted(name for name, role in found.items() if (role / file).is_file())


class LookupModule(LookupBase):  # type: ignore[misc] # Ansible has no types
    """See DOCUMENTATION."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002 - Ansible's
        """Answer with one list for each file."""
        folders = [str(Path(variables["playbook_dir"]) / "roles"), *C.DEFAULT_ROLES_PATH]
        return [stacks_with(folders, str(file)) for file in terms]
