"""Vars plugin: inventory variables of stacks outside the checkout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.vars import BaseVarsPlugin
from ansible.utils.vars import combine_vars

DOCUMENTATION = """
name: outside_stacks
short_description: Loads inventory/common/*.yml of the folder that TRAINBED_STACKS names
description:
  - Like those of the checkout's own C(inventory/common), these files apply to every host, and an inventory's
    group_vars override them.
options:
  stage:
    # Once, when the inventory is read. Later it would override the inventory's own group_vars.
    default: inventory
    ini: [{key: stage, section: vars_outside_stacks}]
extends_documentation_fragment:
  - vars_plugin_staging
"""

VARIABLE = "TRAINBED_STACKS"


class VarsModule(BaseVarsPlugin):  # type: ignore[misc] # Ansible has no types
    """See DOCUMENTATION."""

    is_stateless = True

    def get_vars(self, loader: Any, path: str, entities: Any, cache: bool = True) -> dict[str, Any]:  # noqa: ARG002 - Ansible's
        """Return the variables of the group `all`; none for any other host or group.

        Raises:
            AnsibleError: the folder is not there.
        """
        folder = os.environ.get(VARIABLE)
        entities = entities if isinstance(entities, list) else [entities]
        if not folder or "all" not in [entity.name for entity in entities]:
            return {}
        if not Path(folder).is_dir():
            raise AnsibleError(
                f"{VARIABLE} names {folder}, and there is no such folder. Correct it, or unset it."
            )
        found: dict[str, Any] = {}
        for file in sorted((Path(folder) / "inventory" / "common").glob("*.yml")):
            content = loader.load_from_file(str(file), cache="all", unsafe=True, trusted_as_template=True)
            found = combine_vars(found, content or {})
        return found
