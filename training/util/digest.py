"""Digests of files and code: equal bytes, equal digest."""

from __future__ import annotations

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def code_digest(package: Traversable | None = None) -> str:
    """SHA-256 over path and bytes of every Python file of this package, also when run from an archive.

    Args:
        package: another copy of it, such as the one in an archive.
    """
    sha = hashlib.sha256()
    sources = _sources(package if package is not None else resources.files("training"), "")
    for name, file in sorted(sources, key=lambda each: each[0]):
        content = file.read_bytes()
        sha.update(f"{name} {len(content)}\n".encode())
        sha.update(content)
    return sha.hexdigest()


def _sources(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _sources(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            found.append((prefix + entry.name, entry))
    return found
