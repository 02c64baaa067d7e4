"""Filters that check a configuration of Determined's before it is installed."""

from __future__ import annotations

import difflib
from typing import Any


def unknown_keys(config: Any, known: Any, place: str = "") -> list[str]:
    """Where `config` has keys that are not `known`, a sentence each.

    Args:
        config: the configuration, or a part of it.
        known: keys that it may hold, each with what may stand below it: None for a plain value, `anything`
            for what is not looked into, a list for a list (its entry is what each element may hold).
        place: where that part stands, as in `resource_pools[0]`.
    """
    if known == "anything" or config is None:
        return []
    if isinstance(known, dict):
        if not isinstance(config, dict):
            return [f"{place} holds {config!r}, and should hold keys: {', '.join(sorted(known))}."]
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
    return [f"{inside} is no key that Determined 0.38.1 knows" + (f" (is it {near[0]}?)." if near else ".")]


class FilterModule:
    """The filters, by name."""

    def filters(self) -> dict[str, Any]:
        """Filters of this file."""
        return {"determined_unknown_keys": unknown_keys}
