"""Where workloads on texts have their rows from: the user's files, or the hub; split by split."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.hub import HubData, find_hub_data
from training.data.tables import Row, read_rows, table_digest
from training.data.texts import TextData
from training.errors import DataError


@dataclass(frozen=True)
class Table:
    """Rows that are read when they are asked for, one after another, any number of times."""

    what: str  # it, in a sentence
    rows: Callable[[Sequence[str]], Iterator[Row]]  # takes the columns that are needed (errors: DataError)


def find_tables(data: TextData, folder: Path) -> tuple[dict[str, Table], dict[str, str]]:
    """What `data` of the source `files` or `hub` are read from.

    Args:
        data: names them.
        folder: what names of files are relative to.

    Returns:
        The tables of the splits that have their own, train first, and what is said of them: `sha256`, `note`,
        and the `commit` on the hub.

    Raises:
        DataError: a file can't be read, or the commit can't be found out.
    """
    if data.source == "hub":
        assert data.dataset is not None
        otherwise = "use source: files with a copy of it"
        found = find_hub_data(data.dataset, data.dataset_config, data.dataset_revision, otherwise)
        named = {"train": data.train_split, "validation": data.validation_split, "test": data.test_split}
        note = f"{data.name} of the hub, at commit {found.commit}."
        return (
            {split: hub_table(found, name) for split, name in named.items() if name},
            {"sha256": found.sha256, "note": note, "commit": found.commit},
        )
    named = {"train": data.train_file, "validation": data.validation_file, "test": data.test_file}
    paths = {split: folder / name for split, name in named.items() if name}
    return (
        {split: file_table(path) for split, path in paths.items()},
        {"sha256": _digest(paths.values()), "note": "The user's own files."},
    )


def _digest(paths: Collection[Path]) -> str:
    digests = [table_digest(path) for path in paths]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def hub_table(found: HubData, split: str) -> Table:
    """A split of a data set on the hub."""

    def rows(columns: Sequence[str]) -> Iterator[Row]:
        return ((f"{place} of {split}", row) for place, row in found.rows(split, columns))

    return Table(found.what, rows)


def file_table(path: Path) -> Table:
    """A file (`training.data.tables`)."""

    def rows(columns: Sequence[str]) -> Iterator[Row]:
        empty = True
        for row in read_rows(path, columns):
            empty = False
            yield row
        if empty:
            raise DataError(f"The file {path} holds no rows.")

    return Table(f"The file {path}", rows)
