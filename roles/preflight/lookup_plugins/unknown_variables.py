"""Lookup plugin: variables of the inventory that look like ours, and that nothing reads."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Any, Final

from ansible import constants as C
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: unknown_variables
short_description: Those of the given variables that look like one of a role or of every cluster, and are none
description:
  - Returns a sentence for each, with the closest name that exists. A variable looks like ours if it begins
    with the name of a role that has variables, or if it resembles one in C(inventory/common).
options:
  _terms: {description: Names of all variables of the inventory., required: true}
"""

#: How much a name without a role's prefix must resemble one of ours (0 to 1, difflib's ratio).
RESEMBLES: Final = 0.87
#: Facts that tasks set, by convention.
SET_BY_TASKS: Final = re.compile(r".+_(lacking|broken|standin)$")
#: Roles whose variables are set in the inventory's own files, by names of its own, too.
OWN_NAMES: Final = ("testbed",)


def unknown(given: list[str], roles: dict[str, set[str]], common: set[str]) -> list[dict[str, str]]:
    """The given names that are none of `roles` (variables by role) nor `common`, but look like it."""
    known = set.union(common, *roles.values())
    prefixes = tuple(f"{name}_" for name, variables in roles.items() if variables and name not in OWN_NAMES)
    found = []
    for name in sorted(set(given) - known):
        if SET_BY_TASKS.match(name) or name.startswith("ansible_"):
            continue
        cutoff = 0.0 if name.startswith(prefixes) else RESEMBLES
        if name.startswith(tuple(f"{own}_" for own in OWN_NAMES)):
            continue
        for closest in difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff):
            found.append({"name": name, "closest": closest})
    return found


def sentence(name: str, closest: str) -> str:
    """What is wrong with a variable, and what to do."""
    return (
        f"The inventory sets {name}, which nothing here reads; the closest name is {closest}: correct it, or "
        "list it in preflight_foreign_variables if it is for something else."
    )


class LookupModule(LookupBase):  # type: ignore[misc] # Ansible has no types
    """See DOCUMENTATION."""

    def run(self, terms: list[str], variables: Any = None, **kwargs: Any) -> list[Any]:  # noqa: ARG002 - Ansible's
        """Answer for all of them."""
        playbooks = Path(variables["playbook_dir"])
        folders = [playbooks / "roles", *map(Path, C.DEFAULT_ROLES_PATH)]
        roles: dict[str, set[str]] = {}
        for role in [path.parent for folder in folders for path in sorted(folder.glob("*/tasks"))]:
            names = set(self._read(role / "defaults" / "main.yml"))
            for entry in self._read(role / "meta" / "argument_specs.yml").get("argument_specs", {}).values():
                names |= set(entry.get("options") or {})
            own = {name for name in names if name.startswith(f"{role.name}_")}
            # -e may also set those that are no option of the role.
            within = set(self._read(role / "vars" / "main.yml"))
            roles.setdefault(role.name, set()).update(names | within if own else set())
        common: set[str] = set()
        checkouts = [playbooks.parent, *map(Path, filter(None, [os.environ.get("TRAINBED_STACKS")]))]
        for path in [path for root in checkouts for path in (root / "inventory" / "common").glob("*.yml")]:
            common |= set(self._read(path))
        return [sentence(**each) for each in unknown([str(name) for name in terms], roles, common)]

    def _read(self, path: Path) -> dict[str, Any]:
        return (self._loader.load_from_file(str(path)) or {}) if path.is_file() else {}
