"""Digests of files on a node, whose Python may be older than the controller's."""

from __future__ import annotations

import hashlib
from pathlib import Path


def file_sha256(path: Path) -> str:
    """A file's SHA-256; it may be larger than the memory."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):  # hashlib.file_digest needs Python 3.11
            digest.update(part)
    return digest.hexdigest()
