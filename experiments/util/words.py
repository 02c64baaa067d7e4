"""Words that depend on a number."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def listed(texts: Sequence[str], before_last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = texts
    return f"{', '.join(first)} {before_last} {last}" if first else last
