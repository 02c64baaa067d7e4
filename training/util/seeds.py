"""Seeds for the purposes of a run, all derived from one."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, purpose: str, *numbers: int) -> int:
    """A seed for one purpose, independent of those for others: 63 bits of a SHA-256."""
    text = ":".join([purpose, str(seed), *map(str, numbers)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
