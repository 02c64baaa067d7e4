"""Vars plugin: what every cluster has in common, wherever its inventory is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.vars import BaseVarsPlugin
from ansible.utils.vars import combine_vars

DOCUMENTATION = """
name: common_variables
short_description: Loads inventory/common/*.yml of the checkout, and of the folder that TRAINBED_STACKS names
description:
  - These files apply to every host. An inventory overrides them, in group_vars, host_vars or its own file.
  - Where the two folders set the same variable, the checkout's counts.
options:
  stage:
    # Once, when the inventory is read. Later it would override the inventory's own group_vars.
    default: inventory
    ini: [{key: stage, section: vars_common_variables}]
extends_documentation_fragment:
  - vars_plugin_staging
"""

VARIABLE = "TRAINBED_STACKS"
COMMON = Path("inventory") / "common"
ROOT = Path(__file__).resolve().parents[2]


class VarsModule(BaseVarsPlugin):  # type: ignore[misc] # Ansible has no types
    """See DOCUMENTATION."""

    is_stateless = True

    def get_vars(self, loader: Any, path: str, entities: Any, cache: bool = True) -> dict[str, Any]:  # noqa: ARG002 - Ansible's
        """Return the variables of the group `all`; none for any other host or group.

        Raises:
            AnsibleError: the folder of stacks outside the checkout is not there.
        """
        entities = entities if isinstance(entities, list) else [entities]
        everything = next((entity for entity in entities if entity.name == "all"), None)
        if everything is None:
            return {}
        found: dict[str, Any] = {}
        for folder in common_folders():
            for file in sorted((folder / COMMON).glob("*.yml")):
                content = loader.load_from_file(str(file), cache="all", unsafe=True, trusted_as_template=True)
                found = combine_vars(found, content or {})
        # Ansible ranks what plugins say above the inventory file's own `all: vars:`.
        return {name: value for name, value in found.items() if name not in everything.vars}


def common_folders() -> list[Path]:
    """The folders that hold common variables; later ones override earlier ones.

    Raises:
        AnsibleError: the folder of stacks outside the checkout is not there.
    """
    outside = os.environ.get(VARIABLE)
    if not outside:
        return [ROOT]
    if not Path(outside).is_dir():
        raise AnsibleError(
            f"{VARIABLE} names {outside}, and there is no such folder. Correct it, or unset it."
        )
    return [Path(outside), ROOT]
