"""The one error that ends a command of this package."""

from __future__ import annotations


class MachinesError(Exception):
    """Says in one sentence what is wrong, where, and what to do."""
