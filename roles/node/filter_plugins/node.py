"""Filter: what a role would put on a fresh node, for check mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def by_distribution(entry: Any, distribution: str) -> Any:
    """An entry of meta/stack.yml, or what it says for this distribution; None if it says nothing."""
    return entry.get(distribution) if isinstance(entry, Mapping) else entry


def node_would_have(
    declared: Mapping[str, Any] | None, groups: Sequence[str], distribution: str
) -> dict[str, list[str]]:
    """Packages, files and services that a stack's meta/stack.yml declares for a node.

    Args:
        declared: the content of that file; None if the role has none.
        groups: of the node.
        distribution: with its major version, such as Debian-12.
    """
    found: dict[str, list[str]] = {"packages": [], "files": [], "services": []}
    for group in groups:
        on_node = (declared or {}).get(group) or {}
        found["packages"] += by_distribution(on_node.get("packages", []), distribution) or []
        found["files"] += filter(
            None, (by_distribution(file, distribution) for file in on_node.get("files", []))
        )
        found["services"] += on_node.get("services", [])
    return {kind: sorted(set(names)) for kind, names in found.items()}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        """The filter by name."""
        return {"node_would_have": node_would_have}
