"""Texts to token ids. Equal settings and texts give equal bytes."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer

from training.data.prepare import Place, Preparation
from training.data.prepared import SPLITS, write_batches
from training.data.progress import shown
from training.data.split import split_by_class
from training.data.spool import Drawn, Spool, chunks
from training.errors import DataError
from training.util.files import publish
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.sources import Samples, Source, find_source
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
TEXT_BYTES: Final = 1 << 26  # of a batch of texts, about; fewer are a single batch


def prepare(data: Data, place: Place) -> Preparation:
    """The texts that `data` names; they are read, split and tokenised when they are written.

    Raises:
        DataError: the texts or the encoder can't be loaded or used.
    """
    source = find_source(data, place.reviews, place.files)

    def write(draft: Path) -> dict[str, Any]:
        splits = dict(zip(SPLITS, draw(source, data, draft), strict=True))
        tokenizer = _tokenizer(data, place.files, splits["train"].texts.in_order(), draft)
        counts = {name: _write_split(draft, name, part, tokenizer, data) for name, part in splits.items()}
        repeated = _repeated({name: _write_texts(draft, name, part) for name, part in splits.items()})
        _write(draft / TOKENIZER, tokenizer.to_str(pretty=True).encode())
        return {"counts": counts, "vocabulary": tokenizer.get_vocab_size(), "repeated_texts": repeated}

    # An encoder may have changed under its name: only its files identify it.
    return Preparation(
        source={"name": data.name, "sha256": source.sha256, "note": source.note}
        | ({"commit": source.commit} if source.commit else {}),
        write=write,
        identified=data.tokenizer != "pretrained",
    )


@dataclass(frozen=True)
class Part:
    """The samples of one split, in their order; the texts are in a file."""

    texts: Drawn
    labels: npt.NDArray[np.int16]  # [samples]


def draw(source: Source, spec: Data, folder: Path) -> tuple[Part, Part]:
    """The training and the validation split that `spec` asks for; texts go to a file in `folder`.

    Raises:
        DataError: there are fewer samples than asked for, or they are of one class only, or they can't be
            read.
    """
    if source.validation is None:
        return _drawn(source.train, spec.train, spec.validation, spec, folder)
    train, _ = _drawn(source.train, spec.train, 0, spec, folder)
    validation, _ = _drawn(source.validation, spec.validation, 0, spec, folder)
    return train, validation


def _drawn(samples: Samples, train: int, validation: int, spec: Data, folder: Path) -> tuple[Part, Part]:
    labels = array("h")

    def texts() -> Iterator[str]:
        for sample in shown(samples(), "reading texts"):
            labels.append(sample.label)
            yield sample.text

    spool = Spool(folder, texts())
    found = np.array(labels)
    first, second = split_by_class(labels, train, validation, spec.seed, len(spec.class_names))
    return Part(Drawn(spool, first), found[first]), Part(Drawn(spool, second), found[second])


def _tokenizer(spec: Data, folder: Path, texts: Iterable[str], draft: Path) -> Tokenizer:
    """The tokenizer that `spec` asks for; a pretrained encoder is saved in `draft`, too."""
    if spec.tokenizer != "pretrained":
        return train_tokenizer(texts, spec)
    from training.data.pretrained import find_pretrained, load_with_tokenizer

    assert spec.pretrained is not None
    otherwise = "use tokenizer: wordpiece-from-train"
    place = find_pretrained("encoder", spec.pretrained, spec.revision, folder, otherwise)
    encoder = load_with_tokenizer(place, spec.max_length)
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
    found = np.bincount(part.labels, minlength=len(spec.class_names)).tolist()
    return {
        "samples": len(part.texts),
        "classes": dict(zip(spec.class_names, found, strict=True)),
        "tokens": tally.tokens,
        "truncated": tally.truncated,
    }


def _tokenised(
    part: Part, name: str, tokenizer: Tokenizer, spec: Data, tally: _Tally
) -> Iterator[pa.RecordBatch]:
    kind, at = label_type(len(spec.class_names)), 0
    for texts in shown(chunks(part.texts), f"tokenising {name}", len(part.texts), len):
        encodings = tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int32)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int8)
        tally.tokens += int(mask.sum(dtype=np.int64))
        tally.truncated += sum(bool(encoding.overflowing) for encoding in encodings)
        labels = pa.array(part.labels[at : at + len(texts)]).cast(kind)
        at += len(texts)
        yield split_batch(pa.array(ids.reshape(-1)), pa.array(mask.reshape(-1)), labels, spec.max_length)


def _write_texts(draft: Path, name: str, part: Part) -> npt.NDArray[np.bytes_]:
    """Write one split's texts; returns a digest of each, which equal ones have in common."""
    digests = bytearray()

    def batches() -> Iterator[pa.RecordBatch]:
        held: list[str] = []
        size = 0
        for text in shown(part.texts, f"writing the texts of {name}", len(part.texts)):
            content = text.encode()
            digests.extend(hashlib.blake2b(content, digest_size=16).digest())
            held.append(text)
            size += len(content)
            if size >= TEXT_BYTES:
                yield pa.record_batch([pa.array(held, pa.large_string())], schema=TEXT)
                held, size = [], 0
        if held:
            yield pa.record_batch([pa.array(held, pa.large_string())], schema=TEXT)

    write_batches(draft / TEXTS.format(split=name), TEXT, batches())
    return np.frombuffer(digests, dtype="S16")


def _repeated(digests: dict[str, npt.NDArray[np.bytes_]]) -> dict[str, int]:
    """How many samples repeat an earlier one's text; they are kept, and reported."""
    train, validation = (np.unique(digests[name]) for name in SPLITS)
    return {
        "train": len(digests["train"]) - len(train),
        "validation": len(digests["validation"]) - len(validation),
        "validation_also_in_train": int(np.isin(digests["validation"], train).sum()),
    }


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        publish(path, file.fileno())
