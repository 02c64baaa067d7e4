"""Filters that check Determined's configuration before it is installed."""

from __future__ import annotations

import difflib
from typing import Any


def unknown_keys(config: Any, known: Any, place: str = "") -> list[str]:
    """One sentence for each key in `config` that is not `known`, or holds the wrong kind of value.

    Args:
        config: the configuration, or a part of it.
        known: keys that it may hold, each with what it may contain: None for a plain value, `anything`
            for unchecked content, a list for a list (its entry describes each element).
        place: path of that part, such as `resource_pools[0]`.
    """
    if known == "anything" or config is None:
        return []
    if isinstance(known, dict):
        if not isinstance(config, dict):
            return [f"{place} holds {config!r}, but should hold keys: {', '.join(sorted(known))}."]
        return [fault for key, value in config.items() for fault in _of_key(key, value, known, place)]
    if isinstance(known, list):
        if not isinstance(config, list):
            return [f"{place} should be a list."]
        each = known[0] if known else None
        return [
            fault for at, value in enumerate(config) for fault in unknown_keys(value, each, f"{place}[{at}]")
        ]
    return [f"{place} should be a plain value."] if isinstance(config, dict | list) else []


def _of_key(key: str, value: Any, known: dict[str, Any], place: str) -> list[str]:
    inside = f"{place}.{key}" if place else key
    if key in known:
        return unknown_keys(value, known[key], inside)
    near = difflib.get_close_matches(key, known, n=1)
    return [f"Determined 0.38.1 knows no key {inside}" + (f" (did you mean {near[0]}?)." if near else ".")]


class FilterModule:
    """The filters, by name."""

    def filters(self) -> dict[str, Any]:
        """Filters of this file."""
        return {"determined_unknown_keys": unknown_keys}
