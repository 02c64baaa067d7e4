"""The splits of a prepared data set of texts: token ids, attention masks and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from training.data.prepared import Dataset, Rows, column, find_dataset, read_batches, write_rows
from training.errors import DataError
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.untokenised import Tokenizing, Tokens, Untokenised

TEXTS: Final = "{split}.texts.arrow"  # what a split's ids were made from
TOKENIZER: Final = "tokenizer.json"
TOKENS: Final = ("input_ids", "attention_mask", "token_type_ids")
"""What a model takes of each sample; only pairs have types: 1 in the second text."""

ENCODER: Final = "encoder"  # folder of the pretrained encoder, where the data set has one


@dataclass(frozen=True)
class Split:
    """One split, memory-mapped: pages are read from the file when a batch first touches them."""

    columns: dict[str, Rows]  # those of `TOKENS`, each [samples, max_length]
    labels: npt.NDArray[Any]  # [samples], or of label sets [samples, labels]; see `label_type`
    untokenised: Untokenised | None = None  # if ids are made for each batch instead of read

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_ids(self) -> npt.NDArray[np.int32]:
        """All ids, [samples, max_length]: a copy if they are in several batches."""
        return self.columns["input_ids"].whole()

    @property
    def attention_mask(self) -> npt.NDArray[np.int8]:
        """All attention masks, [samples, max_length]: a copy if they are in several batches."""
        return self.columns["attention_mask"].whole()

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many tokens of each sample are not padding, [samples]."""
        masks = self.columns["attention_mask"].parts
        return np.concatenate([part.sum(axis=1, dtype=np.int64) for part in masks])

    def tokens(self, rows: npt.NDArray[np.int64]) -> Tokens:
        """Each column's part, [samples, max_length], of the samples with the numbers `rows`."""
        if self.untokenised:
            return self.untokenised.tokens(rows)
        return {name: column.take(rows) for name, column in self.columns.items()}


def open_splits(
    dataset: Dataset, *, in_loop: Tokenizing | None = None, tokens: Path | None = None
) -> dict[str, Split]:
    """The splits of a prepared data set, by name.

    Args:
        dataset: prepared from texts.
        in_loop: how its texts become ids when a batch is taken; None = they are not read.
        tokens: folder of the tokens to read instead of the prepared ones.

    Raises:
        DataError: a file of it has changed, or its texts are asked for and it has none.
    """
    path, names = dataset.path, dataset.splits
    texts = {TEXTS.format(split=name) for name in names}
    if in_loop and (lacking := texts - set(dataset.description["files"])):
        raise DataError(
            f"The data set {path} has no texts ({', '.join(sorted(lacking))}), which tokenizing: in_loop "
            "and in_run need; it was prepared by an older version: prepare it again."
        )
    untouched = set() if in_loop else texts
    if tokens is not None:
        untouched |= {f"{name}.arrow" for name in names}
    dataset.check(untouched)
    splits = {name: open_split(tokens or path, name) for name in names}
    if in_loop:
        splits = {name: _with_texts(path, name, split, in_loop) for name, split in splits.items()}
    return splits


def find_splits(path: Path, digest: str, *, in_loop: Tokenizing | None = None) -> dict[str, Split]:
    """The splits of the prepared data set in `path` (errors: `find_dataset` and `open_splits`)."""
    return open_splits(find_dataset(path, digest), in_loop=in_loop)


def vocabulary(dataset: Dataset) -> int:
    """Number of entries that a data set's token ids come from."""
    learnt = dataset.description["spec"]["tokenizer"] == "wordpiece-from-train"
    return int(dataset.description["spec"]["vocabulary"] if learnt else dataset.description["vocabulary"])


def encoder_folder(dataset: Dataset) -> Path:
    """Folder of the pretrained encoder that comes with a data set.

    Raises:
        DataError: it has none.
    """
    if not (dataset.path / ENCODER).is_dir():
        raise DataError(f"The data set {dataset.path} has no pretrained encoder; prepare it with one.")
    return dataset.path / ENCODER


def label_type(data: Data) -> pa.DataType:
    """The type of labels: a class's number, or 1 for each label that is there and 0 if not, or a number."""
    if data.problem_type == "regression":
        return pa.float32()
    classes = len(data.class_names)
    if data.problem_type == "multi_label_classification":
        return pa.list_(pa.int8(), classes)
    return pa.int8() if classes <= 128 else pa.int16()


def open_split(path: Path, name: str) -> Split:
    """The tokens of one split, in the folder `path`."""
    file = path / f"{name}.arrow"
    batches = read_batches(file)
    return Split(
        {name: Rows(file, name) for name in TOKENS if name in batches[0].schema.names},
        column(batches, "label"),
    )


def split_batch(columns: Mapping[str, pa.Array], labels: pa.Array, length: int) -> pa.RecordBatch:
    """Some samples of a split, as its file has them.

    Args:
        columns: of `TOKENS`: int32 ids, and int8 masks and types, each [samples * length].
        labels: [samples], see `label_type`.
        length: tokens of each sample, padding included.
    """
    rows = {name: pa.FixedSizeListArray.from_arrays(flat, length) for name, flat in columns.items()}
    return pa.record_batch({**rows, "label": labels})


def write_split(path: Path, batches: Iterator[pa.RecordBatch], length: int) -> None:
    """Write one split as an Arrow file, as training reads it.

    Args:
        path: the file.
        batches: one or more, see `split_batch`.
        length: tokens of each sample, padding included.
    """
    first = next(batches)
    write_rows(path, first.schema, chain([first], batches), length)


def _with_texts(path: Path, name: str, split: Split, how: Tokenizing) -> Split:
    """A split whose ids are made from its texts, batch by batch."""
    texts = Untokenised.open(path / TEXTS.format(split=name), path / TOKENIZER, how)
    return replace(split, untokenised=texts)
