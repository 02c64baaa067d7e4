"""The code archive: the training package as one zip whose digest says which code a run used."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

from experiments.cluster.stack_facts import FILE as FACTS
from experiments.util.errors import UserError
from experiments.util.files import file_sha256


def build_archive(package: Path) -> bytes:
    """The Python files of `package` as a zip that holds the package at its top; equal code gives equal bytes.

    Raises:
        UserError: there is no such package.
    """
    files = sorted(
        path
        for path in package.rglob("*.py")
        if path.is_file() and "__pycache__" not in path.relative_to(package).parts
    )
    if not files:
        raise UserError(
            f"There is no Python code in {package}: the training code is missing from this checkout."
        )
    buffer = io.BytesIO()
    # Stored, with one fixed date: neither a compressor's version nor a checkout's times may change it.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in files:
            name = f"{package.name}/{path.relative_to(package).as_posix()}"
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, also where it is built elsewhere
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def launching_digest(root: Path, stacks: Sequence[str]) -> str:
    """SHA-256 of all in the repository that launches runs of `stacks`: changed, they are other runs.

    What a role says of itself for the report (meta/facts.yml) launches nothing. Nor does what Python and
    editors leave beside its files: compiled plugins, which differ in every checkout, hidden files, backups.
    """
    folders = [root / "roles" / name for name in sorted({*stacks, "runs"})]
    files = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    sha = hashlib.sha256()
    for path in [root / "playbooks" / "run.yml", *files]:
        name = path.relative_to(root)
        if path.is_file() and path.parts[-2:] != FACTS.parts and not _is_byproduct(name):
            sha.update(f"{name.as_posix()} {file_sha256(path)}\n".encode())
    return sha.hexdigest()


def _is_byproduct(name: Path) -> bool:
    compiled = "__pycache__" in name.parts or name.suffix == ".pyc"
    return compiled or name.name.endswith("~") or any(part.startswith(".") for part in name.parts)
