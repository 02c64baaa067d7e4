"""The code archive: the training package as one zip whose digest says which code a run used.

It also holds what lies outside the checkout: launchers of stacks, and a user's own workload.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path

from experiments.cluster import declarations, stack_facts
from experiments.cluster.stack_folders import outside_launchers, role_of
from experiments.util.errors import UserError
from experiments.util.files import file_sha256
from training.registry import folder_name
from training.util.digest import code_digest, files_in

#: Files that only describe a role, for reports, cleaning up, verifying, and readers.
DESCRIBING = {declarations.FILE, stack_facts.FILE, Path("README.md")}


def training_archive(root: Path, workload: Path | None = None) -> bytes:
    """The code archive of the checkout at `root`, with a user's own workload in a folder elsewhere.

    Raises:
        UserError: the training package is missing, or two launchers have the same name.
    """
    return build_archive(root / "training", outside_launchers(root), workload)


def build_archive(package: Path, launchers: Sequence[Path] = (), workload: Path | None = None) -> bytes:
    """The Python files of `package` as a zip that holds the package at its top; equal code gives equal bytes.

    Args:
        package: the folder.
        launchers: files to put beside the package's own launchers.
        workload: a folder to put, with all its files, beside the package's own workloads.

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
    # Uncompressed and with a fixed date: neither zlib's version nor the files' times may change the digest.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        named: list[tuple[str, Traversable]] = []
        named += [(path.relative_to(package).as_posix(), path) for path in files]
        named += [(f"launchers/{path.name}", path) for path in launchers]
        if workload is not None:
            among = f"workloads/{folder_name(workload.name)}"
            named += [(f"{among}/{name}", path) for name, path in files_in(workload)]
        for name, path in sorted(named, key=lambda each: each[0]):
            entry = zipfile.ZipInfo(f"{package.name}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, wherever it is built
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def source_digest(archive: Path) -> str:
    """The digest of an archive's code as the ranks compute it.

    Raises:
        UserError: the file is missing, or not an archive.
    """
    try:
        return code_digest(zipfile.Path(archive, "training/"))
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"The code of the runs, {archive}, can't be read: {error}.") from error


def launching_digest(root: Path, stacks: Sequence[str]) -> str:
    """SHA-256 of everything in the repository that launches runs of `stacks`, for a campaign's identity.

    Also of stacks that they run as. It leaves out what only describes a role (meta/facts.yml, meta/stack.yml,
    README.md), and what Python and editors leave behind: compiled plugins, which differ in every checkout,
    hidden files, backups.

    Raises:
        UserError: what a role declares is damaged.
    """
    declared = [declarations.read_declaration(role_of(name, root)) for name in stacks]
    others = [each.runs_as for each in declared if each is not None and each.runs_as is not None]
    roles = [role_of(name, root) for name in sorted({*stacks, *others, "runs"})]
    files = [
        (role, path)
        for role in roles
        for path in sorted(role.rglob("*"))
        if path.is_file() and path.relative_to(role) not in DESCRIBING
    ]
    sha = hashlib.sha256()
    playbooks = root / "playbooks"
    for folder, path in [(playbooks, playbooks / "run.yml"), *files]:
        name = Path(folder.name) / path.relative_to(folder)
        if path.is_file() and not _is_byproduct(name):
            sha.update(f"{name.as_posix()} {file_sha256(path)}\n".encode())
    return sha.hexdigest()


def _is_byproduct(name: Path) -> bool:
    compiled = "__pycache__" in name.parts or name.suffix == ".pyc"
    return compiled or name.name.endswith("~") or any(part.startswith(".") for part in name.parts)
