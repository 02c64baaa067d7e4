"""The splits of a prepared data set of texts: token ids, attention masks and labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from training.data.prepared import SPLITS, Dataset, Rows, find_dataset, read_batches, write_rows
from training.errors import DataError
from training.workloads.text_classification.untokenised import Untokenised

TEXTS: Final = "{split}.texts.arrow"  # what a split's ids were made from
TOKENIZER: Final = "tokenizer.json"
ENCODER: Final = "encoder"  # folder of the pretrained encoder, where the data set has one


@dataclass(frozen=True)
class Split:
    """One split, memory-mapped: pages are read from the file when a batch first touches them."""

    ids: Rows  # int32 [samples, max_length]
    masks: Rows  # int8 [samples, max_length]
    labels: npt.NDArray[np.signedinteger]  # [samples]; see `label_type`
    untokenised: Untokenised | None = None  # if ids are made for each batch instead of read

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_ids(self) -> npt.NDArray[np.int32]:
        """All ids, [samples, max_length]: a copy if they are in several batches."""
        return self.ids.whole()

    @property
    def attention_mask(self) -> npt.NDArray[np.int8]:
        """All attention masks, [samples, max_length]: a copy if they are in several batches."""
        return self.masks.whole()

    def tokens(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """Ids and attention masks, both [samples, max_length], of the samples with the numbers `rows`."""
        if self.untokenised:
            return self.untokenised.tokens(rows)
        return self.ids.take(rows), self.masks.take(rows)


def open_splits(dataset: Dataset, *, in_loop: bool = False, tokens: Path | None = None) -> dict[str, Split]:
    """The splits of a prepared data set, by name.

    Args:
        dataset: prepared from texts.
        in_loop: its texts become ids when a batch is taken; otherwise they are not read.
        tokens: folder of the tokens to read instead of the prepared ones.

    Raises:
        DataError: a file of it has changed, or its texts are asked for and it has none.
    """
    path = dataset.path
    texts = {TEXTS.format(split=name) for name in SPLITS}
    if in_loop and (lacking := texts - set(dataset.description["files"])):
        raise DataError(
            f"The data set {path} has no texts ({', '.join(sorted(lacking))}), which tokenizing: in_loop "
            "and in_run need; it was prepared by an older version: prepare it again."
        )
    untouched = set() if in_loop else texts
    if tokens is not None:
        untouched |= {f"{name}.arrow" for name in SPLITS}
    dataset.check(untouched)
    splits = {name: open_split(tokens or path, name) for name in SPLITS}
    if in_loop:
        splits = {name: _with_texts(path, name, split) for name, split in splits.items()}
    return splits


def find_splits(path: Path, digest: str, *, in_loop: bool = False) -> dict[str, Split]:
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


def label_type(classes: int) -> pa.DataType:
    """The type of numbers of classes."""
    return pa.int8() if classes <= 128 else pa.int16()


def open_split(path: Path, name: str) -> Split:
    """The tokens of one split, in the folder `path`."""
    batches = read_batches(path / f"{name}.arrow")
    labels: list[npt.NDArray[Any]] = [np.from_dlpack(batch.column("label")) for batch in batches]
    return Split(
        Rows(batches, "input_ids"),
        Rows(batches, "attention_mask"),
        labels[0] if len(labels) == 1 else np.concatenate(labels),
    )


def split_batch(ids: pa.Array, mask: pa.Array, labels: pa.Array, length: int) -> pa.RecordBatch:
    """Some samples of a split, as its file has them.

    Args:
        ids: int32 [samples * length].
        mask: attention masks, int8 [samples * length].
        labels: numbers of classes [samples], see `label_type`.
        length: tokens of each sample, padding included.
    """
    return pa.record_batch(
        {
            "input_ids": pa.FixedSizeListArray.from_arrays(ids, length),
            "attention_mask": pa.FixedSizeListArray.from_arrays(mask, length),
            "label": labels,
        }
    )


def write_split(path: Path, batches: Iterator[pa.RecordBatch], length: int) -> None:
    """Write one split as an Arrow file, as training reads it.

    Args:
        path: the file.
        batches: one or more, see `split_batch`.
        length: tokens of each sample, padding included.
    """
    first = next(batches)
    write_rows(path, first.schema, chain([first], batches), length)


def _with_texts(path: Path, name: str, split: Split) -> Split:
    """A split whose ids are made from its texts, batch by batch."""
    texts = Untokenised.open(path / TEXTS.format(split=name), path / TOKENIZER)
    return replace(split, untokenised=texts)
