"""The splits of a prepared data set of texts: token ids, attention masks and labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from training.data.prepared import SPLITS, Dataset, find_dataset, read_arrow, write_arrow
from training.errors import DataError
from training.workloads.text_classification.untokenised import Tokens, Untokenised

TEXTS: Final = "{split}.texts.arrow"  # what a split's ids were made from
TOKENIZER: Final = "tokenizer.json"
ENCODER: Final = "encoder"  # folder of the pretrained encoder, where the data set has one


@dataclass(frozen=True)
class Split:
    """One split, memory-mapped: pages are read from the file when a batch first touches them."""

    input_ids: npt.NDArray[np.int32]  # [samples, max_length]
    attention_mask: npt.NDArray[np.int8]  # [samples, max_length]
    labels: npt.NDArray[np.signedinteger]  # [samples]; see `label_type`
    token_type_ids: npt.NDArray[np.int8] | None = None  # of pairs: 1 in the second text
    untokenised: Untokenised | None = None  # if ids are made for each batch instead of read

    def __len__(self) -> int:
        return len(self.labels)

    def tokens(self, rows: npt.NDArray[np.int64]) -> Tokens:
        """Ids, masks, and types of pairs, each [samples, max_length], of the samples numbered `rows`."""
        if self.untokenised:
            return self.untokenised.tokens(rows)
        columns: Tokens = {"input_ids": self.input_ids, "attention_mask": self.attention_mask}
        if self.token_type_ids is not None:
            columns["token_type_ids"] = self.token_type_ids
        return {name: column[rows] for name, column in columns.items()}


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
    batch = read_arrow(path / f"{name}.arrow")
    length = batch.schema.field("input_ids").type.list_size
    # Not `to_numpy`, which imports pandas: over a second, for nothing.
    columns: list[npt.NDArray[Any]] = [
        np.from_dlpack(batch.column("input_ids").flatten()).reshape(-1, length),
        np.from_dlpack(batch.column("attention_mask").flatten()).reshape(-1, length),
        np.from_dlpack(batch.column("label")),
    ]
    return Split(columns[0], columns[1], columns[2])


def write_split(path: Path, ids: pa.Array, mask: pa.Array, labels: pa.Array, length: int) -> None:
    """Write one split as an Arrow file of a single batch, as training reads it.

    Args:
        path: the file.
        ids: int32 [samples * length].
        mask: attention masks, int8 [samples * length].
        labels: numbers of classes [samples], see `label_type`.
        length: tokens of each sample, padding included.
    """
    columns = {
        "input_ids": pa.FixedSizeListArray.from_arrays(ids, length),
        "attention_mask": pa.FixedSizeListArray.from_arrays(mask, length),
        "label": labels,
    }
    write_arrow(path, pa.record_batch(columns))


def _with_texts(path: Path, name: str, split: Split) -> Split:
    """A split whose ids are made from its texts, batch by batch."""
    texts = Untokenised.open(path / TEXTS.format(split=name), path / TOKENIZER)
    return replace(split, untokenised=texts)
