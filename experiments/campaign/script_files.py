"""The Python files of a user's script, which a campaign keeps as they were given when it began."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from experiments.cluster.description import Dataset
from experiments.matrix.model import Matrix

FILE: Final = "script.zip"
PREPARED: Final = "files/"  # where a data set has them; see training/workloads/script/prepare.py


def script_files(matrix: Matrix, datasets: Sequence[Dataset]) -> dict[str, bytes]:
    """What a new campaign keeps of the script, by file name; nothing if it has none."""
    found: dict[str, bytes] = {}
    for asked, dataset in zip(matrix.data_specs, datasets, strict=True):
        if asked.data.has_own_loop:
            paths = {name: matrix.folder / name for name in digests_of(dataset.model_dump(), asked.data.name)}
            found |= {
                f"{dataset.digest}/{name}": path.read_bytes()
                for name, path in paths.items()
                if path.is_file()
            }
    if not found:
        return {}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    return {FILE: buffer.getvalue()}


def digests_of(description: Mapping[str, Any], script: str) -> dict[str, str]:
    """SHA-256 of the script and of every Python file beside it, as prepared; every rank checks them."""
    files = {
        name.removeprefix(PREPARED): digest
        for name, digest in description.get("files", {}).items()
        if name.startswith(PREPARED)
    }
    return {name: digest for name, digest in files.items() if name == script or name.endswith(".py")}


def given_files(folder: Path) -> dict[str, dict[str, bytes]]:
    """What the campaign in `folder` has kept: contents by name, by the data set's digest."""
    if not (folder / FILE).is_file():
        return {}
    found: dict[str, dict[str, bytes]] = {}
    with zipfile.ZipFile(folder / FILE) as archive:
        for entry in archive.namelist():
            digest, _, name = entry.partition("/")
            found.setdefault(digest, {})[name] = archive.read(entry)
    return found
