"""Digests of files and code: equal bytes, equal digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
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
    package = package if package is not None else resources.files("training")
    return _digest((name, file) for name, file in files_in(package) if name.endswith(".py"))


def folder_digest(folder: Traversable) -> str:
    """SHA-256 over path and bytes of every file in a folder that `files_in` gives."""
    return _digest(files_in(folder))


def files_in(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    """The files in `folder` and their paths in it, but not what is hidden, compiled or an editor's backup."""
    found = []
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name == "__pycache__" or entry.name.endswith(("~", ".pyc")):
            continue
        if entry.is_dir():
            found += files_in(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + entry.name, entry))
    return sorted(found, key=lambda each: each[0])


def _digest(files: Iterable[tuple[str, Traversable]]) -> str:
    sha = hashlib.sha256()
    for name, file in files:
        content = file.read_bytes()
        sha.update(f"{name} {len(content)}\n".encode())
        sha.update(content)
    return sha.hexdigest()
