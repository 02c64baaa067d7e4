"""Words that depend on a number."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
