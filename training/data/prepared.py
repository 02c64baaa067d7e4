"""A prepared data set: a folder of files with a description, named by the digest of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from training.errors import DataError
from training.settings import canonical
from training.spec import DataSpec
from training.util.digest import file_digest

FORMAT: Final = 3  # 3 added the texts
DESCRIPTION: Final = "dataset.json"
SPLITS: Final = ("train", "validation")  # which every data set has
TEST: Final = "test"
VALUES: Final = 1 << 24  # in the rows of a batch, at most; what is smaller is a single batch
DAMAGED: Final = "The data set {path} is damaged ({files}); remove that folder and prepare it again."


@dataclass(frozen=True)
class Dataset:
    """A prepared data set on this node."""

    path: Path
    description: dict[str, Any]  # dataset.json

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of its splits."""
        return (*SPLITS, TEST) if self.description["spec"].get(TEST) else SPLITS

    def check(self, without: Collection[str] = ()) -> None:
        """Check that its files are what `prepare` wrote, except those in `without`.

        Raises:
            DataError: they are not.
        """
        if damaged := damaged_files(self.path, self.description, without):
            raise DataError(DAMAGED.format(path=self.path, files=", ".join(damaged)))


def find_dataset(path: Path, digest: str) -> Dataset:
    """The prepared data set in `path`; its files have not been checked.

    Raises:
        DataError: there is none, or it is not the one with `digest`.
    """
    try:
        description: dict[str, Any] = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"There is no prepared data set in {path} ({error}); stage it to this node first."
        ) from error
    if description.get("digest") != digest:
        raise DataError(
            f"The data set in {path} is {description.get('digest')}, but the run asks for {digest}."
        )
    return Dataset(path, description)


def damaged_files(path: Path, description: dict[str, Any], without: Collection[str] = ()) -> list[str]:
    """Names of the data set's files that are missing or differ from what `prepare` wrote.

    Files in `without` are not checked.
    """
    files: dict[str, str] = description["files"]
    return [
        name
        for name, digest in files.items()
        if name not in without and (not (path / name).is_file() or file_digest(path / name) != digest)
    ]


def dataset_digest(asked: DataSpec, files: dict[str, str]) -> str:
    """SHA-256 of what was asked for and of every file's SHA-256: the data set's name."""
    content = {"format": FORMAT, **described(asked), "files": files}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def described(asked: DataSpec) -> dict[str, Any]:
    """What was asked for, as a data set's description has it."""
    fields = canonical(asked)
    return {"spec": fields.pop("data"), **fields}


def write_arrow(path: Path, batch: pa.RecordBatch) -> None:
    """Write an Arrow file of a single batch, readable by everybody."""
    write_batches(path, batch.schema, [batch])


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write an Arrow file batch by batch, readable by everybody."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    path.chmod(0o644)


def write_rows(path: Path, schema: pa.Schema, parts: Iterable[pa.RecordBatch], length: int) -> None:
    """Write an Arrow file of rows of `length` values, readable by everybody: in one batch if they are few.

    However the rows are cut into `parts`, the bytes are the same.
    """
    write_batches(path, schema, _regrouped(parts, max(1, VALUES // length)))


def _regrouped(parts: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of so many, but for the last one."""
    held: list[pa.RecordBatch] = []
    count = 0
    for part in parts:
        at = 0
        while at < part.num_rows:
            held.append(part.slice(at, rows - count))
            at += held[-1].num_rows
            count += held[-1].num_rows
            if count == rows:
                yield pa.concat_batches(held)
                held, count = [], 0
    if held:
        yield pa.concat_batches(held)


class Rows:
    """A column of rows of equal length, in the batches of an Arrow file: [rows, length], memory-mapped."""

    def __init__(self, path: Path, column: str) -> None:
        """Those of one column of a file, without copying any."""
        self._path, self._column = path, column
        self.parts = _rows(read_batches(path), column)
        self._starts = np.cumsum([0, *map(len, self.parts[:-1])])

    def __reduce__(self) -> tuple[Any, ...]:
        """Where it is unpickled, the file is mapped again: no row is sent."""
        return Rows, (self._path, self._column)

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Copies of the rows with these numbers."""
        if len(self.parts) == 1:
            return self.parts[0][rows]
        taken = np.empty((len(rows), *self.parts[0].shape[1:]), dtype=self.parts[0].dtype)
        where = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.unique(where):
            here = where == part
            taken[here] = self.parts[part][rows[here] - self._starts[part]]
        return taken

    def whole(self) -> npt.NDArray[Any]:
        """All rows in one array; a copy if they are in several batches."""
        return _joined(self.parts)


def column(batches: Sequence[pa.RecordBatch], name: str) -> npt.NDArray[Any]:
    """A column of numbers, or of rows of equal length, in one array; a copy if it is in several batches."""
    if pa.types.is_fixed_size_list(batches[0].schema.field(name).type):
        return _joined(_rows(batches, name))
    return _joined([np.from_dlpack(batch.column(name)) for batch in batches])


def _rows(batches: Sequence[pa.RecordBatch], column: str) -> list[npt.NDArray[Any]]:
    """A column of rows of equal length, batch by batch: [rows, length] each, without copying any."""
    length = batches[0].schema.field(column).type.list_size
    # Not `to_numpy`, which imports pandas: over a second, for nothing.
    return [np.from_dlpack(batch.column(column).flatten()).reshape(-1, length) for batch in batches]


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def read_arrow(path: Path) -> pa.RecordBatch:
    """The batch in an Arrow file that has only one, memory-mapped."""
    return read_batches(path)[0]


def read_batches(path: Path) -> list[pa.RecordBatch]:
    """The batches in an Arrow file, memory-mapped: pages are read when they are first touched."""
    with pa.memory_map(str(path)) as file:  # the arrays keep the mapping alive
        opened = pa.ipc.open_file(file)
        return [opened.get_batch(number) for number in range(opened.num_record_batches)]
