"""Texts to token ids. Equal settings and texts give equal bytes."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer

from training.data.prepare import Place, Preparation
from training.data.prepared import write_batches
from training.data.pretrained import Place as Pretrained
from training.data.pretrained import find_pretrained, load_with_tokenizer, with_pretrained
from training.data.progress import shown
from training.data.split import split_at_random, split_by_class
from training.data.spool import Drawn, Spool, chunks
from training.errors import DataError
from training.util.files import publish
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.sources import Label, Samples, Source, find_source
from training.workloads.text_classification.splits import (
    ENCODER,
    TEXTS,
    TOKENIZER,
    label_type,
    split_batch,
    write_split,
)
from training.workloads.text_classification.wordpiece import train_tokenizer

TEXT: Final = pa.schema([("text", pa.large_string())])
PAIRS: Final = TEXT.append(pa.field("pair", pa.large_string()))
TEXT_BYTES: Final = 1 << 26  # of a batch of texts, about; fewer are a single batch


def prepare(data: Data, place: Place) -> Preparation:
    """The texts that `data` names; they are read, split and tokenised when they are written.

    Raises:
        DataError: the texts or the encoder can't be loaded or used.
    """
    source = find_source(data, place.reviews, place.files)
    encoder = find_pretrained(data, place.files, "use tokenizer: wordpiece-from-train")

    def write(draft: Path) -> dict[str, Any]:
        splits = draw(source, data, draft)
        tokenizer = _tokenizer(data, encoder, splits["train"].all_texts(), draft)
        counts = {name: _write_split(draft, name, part, tokenizer, data) for name, part in splits.items()}
        repeated = _repeated({name: _write_texts(draft, name, part) for name, part in splits.items()})
        _write(draft / TOKENIZER, tokenizer.to_str(pretty=True).encode())
        return {"counts": counts, "vocabulary": tokenizer.get_vocab_size(), "repeated_texts": repeated}

    return Preparation(source=with_pretrained({"name": data.name} | source.about, encoder), write=write)


@dataclass(frozen=True)
class Part:
    """The samples of one split, in their order; the texts are in files."""

    texts: Drawn
    labels: npt.NDArray[Any]  # [samples], or of label sets [samples, labels]
    pairs: Drawn | None = None  # the second texts

    def all_texts(self) -> Iterable[str]:
        """Its texts in the order of their files, the second ones of pairs last; any number of times."""
        return Texts([each.in_order() for each in (self.texts, self.pairs) if each is not None])


@dataclass(frozen=True)
class Texts:
    """Texts of several files."""

    parts: Sequence[Drawn]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.parts)


def draw(source: Source, spec: Data, folder: Path) -> dict[str, Part]:
    """The splits that `spec` asks for, by name; texts go to files in `folder`.

    Raises:
        DataError: there are fewer samples than asked for, or they are of one class only, or they can't be
            read.
    """
    own = {name: samples for name, samples in source.splits.items() if name != "train"}
    together = [name for name in spec.splits if name not in own]
    parts = _drawn(source.splits["train"], together, spec, folder)
    for name, samples in own.items():
        if name in spec.splits:
            parts |= _drawn(samples, [name], spec, folder)
    return {name: parts[name] for name in spec.splits}


def _drawn(samples: Samples, names: Sequence[str], spec: Data, folder: Path) -> dict[str, Part]:
    """The samples of some splits, by name, drawn from the same ones."""
    labels, pairs = Labels(spec), Spool(folder)

    def texts() -> Iterator[str]:
        for sample in shown(samples(), "reading texts"):
            labels.append(sample.label)
            if sample.pair is not None:
                pairs.append(sample.pair)
            yield sample.text

    spool = Spool(folder, texts())
    pairs.flush()
    sizes = {name: spec.splits[name] for name in names}
    found = labels.array()
    if spec.problem_type == "single_label_classification":
        drawn = split_by_class(labels.flat, sizes, spec.seed, len(spec.class_names))
    else:
        drawn = split_at_random(len(spool), sizes, spec.seed)
    return {
        name: Part(Drawn(spool, numbers), found[numbers], Drawn(pairs, numbers) if len(pairs) else None)
        for name, numbers in drawn.items()
    }


class Labels:
    """The labels of samples, a few bytes each."""

    def __init__(self, spec: Data) -> None:
        """None yet."""
        self._of_sets = spec.problem_type == "multi_label_classification"
        self._names = len(spec.class_names)
        kind = "f" if spec.problem_type == "regression" else "b" if self._of_sets else "h"
        self.flat: array[Any] = array(kind)

    def append(self, label: Label) -> None:
        """Add one."""
        if isinstance(label, tuple):
            self.flat.extend(int(number in label) for number in range(self._names))
        else:
            self.flat.append(label)

    def array(self) -> npt.NDArray[Any]:
        """All: [samples], or of label sets [samples, labels]."""
        found = np.array(self.flat)
        return found.reshape(-1, self._names) if self._of_sets else found


def _tokenizer(spec: Data, place: Pretrained | None, texts: Iterable[str], draft: Path) -> Tokenizer:
    """The tokenizer that `spec` asks for; a pretrained encoder is saved in `draft`, too."""
    if place is None:
        return train_tokenizer(texts, spec)
    encoder = load_with_tokenizer(place, spec)
    pad = encoder.tokenizer.pad_token_id
    if pad is None:
        raise DataError(f"The tokenizer of {encoder.name} has no padding token; use another encoder.")
    encoder.save(draft / ENCODER)
    tokenizer = encoder.fast_tokenizer()
    tokenizer.enable_truncation(spec.max_length)
    tokenizer.enable_padding(length=spec.max_length, pad_id=pad, pad_token=encoder.tokenizer.pad_token)
    return tokenizer


@dataclass
class _Tally:
    tokens: int = 0  # padding not counted
    truncated: int = 0  # samples


def _write_split(draft: Path, name: str, part: Part, tokenizer: Tokenizer, spec: Data) -> dict[str, Any]:
    """Write one split's tokens; returns its counts."""
    tally = _Tally()
    write_split(draft / f"{name}.arrow", _tokenised(part, name, tokenizer, spec, tally), spec.max_length)
    return {
        "samples": len(part.texts),
        "classes": _counted(part.labels, spec),
        "tokens": tally.tokens,
        "truncated": tally.truncated,
    }


def _counted(labels: npt.NDArray[Any], spec: Data) -> dict[str, int]:
    """How many samples have each class, or each label; none if they have numbers."""
    if spec.problem_type == "regression":
        return {}
    of_sets = spec.problem_type == "multi_label_classification"
    found = labels.sum(axis=0) if of_sets else np.bincount(labels, minlength=len(spec.class_names))
    return dict(zip(spec.class_names, found.tolist(), strict=True))


def _tokenised(
    part: Part, name: str, tokenizer: Tokenizer, spec: Data, tally: _Tally
) -> Iterator[pa.RecordBatch]:
    kind, at = label_type(spec), 0
    rows: Iterable[Sequence[Any]] = chunks(part.texts) if part.pairs is None else _pairs(part)
    for texts in shown(rows, f"tokenising {name}", len(part.texts), len):
        encodings = tokenizer.encode_batch(texts)
        columns: dict[str, npt.NDArray[Any]] = {
            "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int32),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings], dtype=np.int8),
        }
        if part.pairs is not None:
            columns["token_type_ids"] = np.array([encoding.type_ids for encoding in encodings], dtype=np.int8)
        tally.tokens += int(columns["attention_mask"].sum(dtype=np.int64))
        tally.truncated += sum(bool(encoding.overflowing) for encoding in encodings)
        flat = {column: pa.array(values.reshape(-1)) for column, values in columns.items()}
        labels = _labels(part.labels[at : at + len(texts)], kind)
        at += len(texts)
        yield split_batch(flat, labels, spec.max_length)


def _pairs(part: Part) -> Iterator[list[tuple[str, str]]]:
    """Chunks of pairs of texts."""
    assert part.pairs is not None
    seconds = iter(part.pairs)
    for firsts in chunks(part.texts):
        yield [(first, next(seconds)) for first in firsts]


def _labels(labels: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(pa.array(labels.reshape(-1)), type=kind)
    return pa.array(labels).cast(kind)


def _write_texts(draft: Path, name: str, part: Part) -> npt.NDArray[np.bytes_]:
    """Write one split's texts; returns a digest of each sample's, which equal ones have in common."""
    digests = bytearray()
    schema = TEXT if part.pairs is None else PAIRS
    seconds = iter(part.pairs or ())

    def batches() -> Iterator[pa.RecordBatch]:
        held: list[list[str]] = [[] for _ in schema]
        size = 0
        for text in shown(part.texts, f"writing the texts of {name}", len(part.texts)):
            row = [text] if part.pairs is None else [text, next(seconds)]
            content = b"\0".join(each.encode() for each in row)
            digests.extend(hashlib.blake2b(content, digest_size=16).digest())
            for column, each in zip(held, row, strict=True):
                column.append(each)
            size += len(content)
            if size >= TEXT_BYTES:
                yield _texts(held, schema)
                held, size = [[] for _ in schema], 0
        if size:
            yield _texts(held, schema)

    write_batches(draft / TEXTS.format(split=name), schema, batches())
    return np.frombuffer(digests, dtype="S16")


def _texts(columns: Sequence[Sequence[str]], schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array(column, pa.large_string()) for column in columns], schema=schema)


def _repeated(digests: dict[str, npt.NDArray[np.bytes_]]) -> dict[str, int]:
    """How many samples repeat an earlier one's text; they are kept, and reported."""
    train = np.unique(digests["train"])
    repeated = {name: len(found) - len(np.unique(found)) for name, found in digests.items()}
    also = {
        f"{name}_also_in_train": int(np.isin(found, train).sum())
        for name, found in digests.items()
        if name != "train"
    }
    return repeated | also


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        publish(path, file.fileno())
