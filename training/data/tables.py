"""Rows of the user's files, read one after another: memory does not grow with the file."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from training.errors import DataError
from training.util.digest import file_digest

Row = tuple[str, Mapping[str, Any]]
"""Its place in the file (`line 5`), and its values by column."""

AT_ONCE: Final = 1000  # rows
READ_AT_ONCE: Final = 1 << 20  # bytes of a column
HALF: Final = re.compile("[\ud800-\udfff]")  # of a character; JSON may have one alone, UTF-8 may not


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a CSV (.csv), JSON lines (.jsonl), Parquet (.parquet) or Arrow (.arrow) file.

    Args:
        path: the file.
        columns: those that are needed. A row of JSON lines may lack some.

    Raises:
        DataError: it can't be read, or lacks a column; the text names the place.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        kinds = ", ".join(READERS)
        raise DataError(
            f"The file {path} is of an unknown type ({path.suffix or 'no extension'}); give one of {kinds}."
        )
    try:
        yield from reader(path, columns)
    except UnicodeDecodeError as error:
        raise DataError(_not_utf8(path)) from error
    except OSError as error:
        raise DataError(f"The file {path} can't be read: {error.strerror or error}.") from error


def table_digest(path: Path) -> str:
    """SHA-256 of a file's bytes.

    Raises:
        DataError: it can't be read.
    """
    try:
        return file_digest(path)
    except OSError as error:
        raise DataError(f"The file {path} can't be read: {error.strerror or error}.") from error


def text_in(what: str, place: str, row: Mapping[str, Any], column: str) -> str:
    """The text in a row's column; `what` has the row, as in `The file mine.csv`.

    Raises:
        DataError: there is none, or it is empty, or it holds half a character.
    """
    text = value_in(what, place, row, column)
    if not isinstance(text, str):
        raise DataError(f"{what} has a {column} that is not a string in {place}: {text!r:.40}.")
    if not text.strip():
        raise DataError(f"{what} has an empty {column} in {place}; remove that row.")
    if half := HALF.search(text):
        raise DataError(
            f"{what} has half a character (\\u{ord(half[0]):x}) in the {column} in {place}; correct or "
            "remove that row."
        )
    return text


def value_in(what: str, place: str, row: Mapping[str, Any], column: str) -> Any:
    """The value in a row's column; `what` has the row, as in `The file mine.csv`.

    Raises:
        DataError: there is none.
    """
    value = row.get(column)
    if value is None:
        raise DataError(f"{what} has no {column} in {place}.")
    return value


def _check_columns(path: Path, there: Sequence[str], columns: Sequence[str]) -> None:
    if missing := set(columns) - set(there):
        raise DataError(f"The file {path} has no column {' or '.join(sorted(missing))}.")


def _csv_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        try:
            names = list(rows.fieldnames or ())
            _check_columns(path, names, columns)
            for row in rows:
                place = f"line {rows.line_num}"
                if None in row or None in row.values():
                    raise DataError(f"The file {path} has a broken row in {place}: not {len(names)} columns.")
                yield place, row
        except csv.Error as error:
            raise DataError(f"The file {path} has a broken row in line {rows.line_num}: {error}.") from error


def _json_rows(path: Path, _: Sequence[str]) -> Iterator[Row]:
    # Only "\n" ends a line: a text may contain Unicode's line separators.
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"The file {path} has invalid JSON in line {number}: {error}.") from error
            if not isinstance(row, dict):
                raise DataError(
                    f"The file {path} has no JSON object in line {number}, but {line.strip()[:40]}."
                )
            yield f"line {number}", row


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    try:
        # Otherwise a whole group of rows would be read at once, and many a file has only one.
        file = parquet.ParquetFile(path, buffer_size=READ_AT_ONCE, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        if not path.is_file():
            raise
        raise DataError(f"The file {path} can't be read as Parquet: {error}") from error
    with file:
        _check_columns(path, file.schema_arrow.names, columns)
        yield from _numbered(path, "Parquet", file.iter_batches(AT_ONCE, columns=list(columns)))


def _arrow_rows(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    if not path.stat().st_size:
        raise DataError(f"The file {path} can't be read as Arrow: it is empty.")
    # Mapped, as a batch may be the whole file: the kernel takes back what was read when memory is short.
    with pa.memory_map(str(path)) as source:
        try:
            try:
                file = pa.ipc.open_file(source)
                batches = (file.get_batch(number) for number in range(file.num_record_batches))
            except pa.ArrowInvalid:  # a stream, as the library datasets writes them
                source.seek(0)
                file = pa.ipc.open_stream(source)
                batches = iter(file)
        except pa.ArrowException as error:
            raise DataError(f"The file {path} can't be read as Arrow: {error}") from error
        _check_columns(path, file.schema.names, columns)
        yield from _numbered(path, "Arrow", (batch.select(list(columns)) for batch in batches))


def _numbered(path: Path, kind: str, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    number = 0
    try:
        for batch in batches:
            for at in range(0, batch.num_rows, AT_ONCE):
                for row in batch.slice(at, AT_ONCE).to_pylist():
                    number += 1
                    yield f"row {number}", row
    except pa.ArrowException as error:
        raise DataError(f"The file {path} can't be read as {kind} after row {number}: {error}") from error


def _not_utf8(path: Path) -> str:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                return (
                    f"The file {path} is not UTF-8: byte 0x{line[error.start]:02x} in line {number}; "
                    "save it as UTF-8."
                )
    return f"The file {path} is not UTF-8; save it as UTF-8."


READERS: Final[dict[str, Callable[[Path, Sequence[str]], Iterator[Row]]]] = {
    ".csv": _csv_rows,
    ".jsonl": _json_rows,
    ".parquet": _parquet_rows,
    ".arrow": _arrow_rows,
}
