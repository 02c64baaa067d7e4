"""A prepared data set: its files, and its reviews in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from training.data.untokenised import Untokenised
from training.errors import DataError
from training.util.digest import file_digest

FORMAT: Final = 3  # 3 added the texts
DESCRIPTION: Final = "dataset.json"
SPLITS: Final = ("train", "validation")
TEXTS: Final = "{split}.texts.arrow"  # what a split's ids were made from
TOKENIZER: Final = "tokenizer.json"
ENCODER: Final = "encoder"  # folder of the pretrained encoder, where the data set has one
DAMAGED: Final = "The data set {path} is damaged ({files}); remove that folder and prepare it again."


@dataclass(frozen=True)
class Reviews:
    """One split, memory-mapped: pages are read from the file when a batch first touches them."""

    input_ids: npt.NDArray[np.int32]  # [reviews, max_length]
    attention_mask: npt.NDArray[np.int8]  # [reviews, max_length]
    labels: npt.NDArray[np.int8]  # [reviews]
    untokenised: Untokenised | None = None  # if ids are made for each batch instead of read

    def __len__(self) -> int:
        return len(self.labels)

    def tokens(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """Ids and attention masks, both [reviews, max_length], of the reviews with the numbers `rows`."""
        if self.untokenised:
            return self.untokenised.tokens(rows)
        return self.input_ids[rows], self.attention_mask[rows]


@dataclass(frozen=True)
class Dataset:
    """A prepared data set."""

    path: Path
    description: dict[str, Any]  # dataset.json
    train: Reviews
    validation: Reviews

    @property
    def vocabulary(self) -> int:
        """Number of entries that its token ids come from."""
        learnt = self.description["spec"]["tokenizer"] == "wordpiece-from-train"
        return int(self.description["spec"]["vocabulary"] if learnt else self.description["vocabulary"])

    @property
    def name(self) -> str:
        """The data set in a few words."""
        spec = self.description["spec"]
        return (
            f"{spec['source']}: {len(self.train)} reviews to train, {len(self.validation)} to validate, "
            f"{spec['max_length']} tokens ({spec['pretrained'] or spec['tokenizer']})"
        )

    @property
    def encoder(self) -> Path:
        """Folder of the pretrained encoder that comes with it.

        Raises:
            DataError: it has none.
        """
        if not (self.path / ENCODER).is_dir():
            raise DataError(f"The data set {self.path} has no pretrained encoder; prepare it with one.")
        return self.path / ENCODER


def open_dataset(path: Path, digest: str, *, in_loop: bool = False, tokens: Path | None = None) -> Dataset:
    """The prepared data set in `path`.

    Args:
        path: its own folder.
        digest: what the run asks for.
        in_loop: its texts become ids when a batch is taken; otherwise they are not read.
        tokens: folder of the tokens to read instead of the prepared ones.

    Raises:
        DataError: there is none, it is not the one with `digest`, a file of it has changed, or its texts are
            asked for and it has none.
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
    texts = {TEXTS.format(split=name) for name in SPLITS}
    if in_loop and (lacking := texts - set(description["files"])):
        raise DataError(
            f"The data set {path} has no texts ({', '.join(sorted(lacking))}), which tokenizing: in_loop "
            "and in_run need; it was prepared by an older version: prepare it again."
        )
    untouched = set() if in_loop else texts
    if tokens is not None:
        untouched |= {f"{name}.arrow" for name in SPLITS}
    if damaged := damaged_files(path, description, without=frozenset(untouched)):
        raise DataError(DAMAGED.format(path=path, files=", ".join(damaged)))
    splits = {name: open_split(tokens or path, name) for name in SPLITS}
    if in_loop:
        splits = {name: _with_texts(path, name, reviews) for name, reviews in splits.items()}
    return Dataset(path, description, splits["train"], splits["validation"])


def damaged_files(
    path: Path, description: dict[str, Any], without: frozenset[str] = frozenset()
) -> list[str]:
    """Names of the data set's files that are missing or differ from what `prepare` wrote.

    Files in `without` are not checked.
    """
    files: dict[str, str] = description["files"]
    return [
        name
        for name, digest in files.items()
        if name not in without and (not (path / name).is_file() or file_digest(path / name) != digest)
    ]


def open_split(path: Path, name: str) -> Reviews:
    """The tokens of one split, in the folder `path`."""
    with pa.memory_map(str(path / f"{name}.arrow")) as file:  # the arrays keep the mapping alive
        batch = pa.ipc.open_file(file).get_batch(0)
    length = batch.schema.field("input_ids").type.list_size
    # Not `to_numpy`, which imports pandas: over a second, for nothing.
    columns: list[npt.NDArray[Any]] = [
        np.from_dlpack(batch.column("input_ids").flatten()).reshape(-1, length),
        np.from_dlpack(batch.column("attention_mask").flatten()).reshape(-1, length),
        np.from_dlpack(batch.column("label")),
    ]
    return Reviews(columns[0], columns[1], columns[2])


def write_split(path: Path, ids: pa.Array, mask: pa.Array, labels: pa.Array, length: int) -> None:
    """Write one split as an Arrow file of a single batch, as training reads it.

    Args:
        path: the file.
        ids: int32 [reviews * length].
        mask: attention masks, int8 [reviews * length].
        labels: int8 [reviews].
        length: tokens of each review, padding included.
    """
    columns = {
        "input_ids": pa.FixedSizeListArray.from_arrays(ids, length),
        "attention_mask": pa.FixedSizeListArray.from_arrays(mask, length),
        "label": labels,
    }
    write_arrow(path, pa.record_batch(columns))


def write_arrow(path: Path, batch: pa.RecordBatch) -> None:
    """Write an Arrow file of a single batch, readable by everybody."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    path.chmod(0o644)


def _with_texts(path: Path, name: str, reviews: Reviews) -> Reviews:
    """A split whose ids are made from its texts, batch by batch."""
    texts = Untokenised.open(path / TEXTS.format(split=name), path / TOKENIZER)
    return replace(reviews, untokenised=texts)
