"""Texts to token ids. Equal settings and texts give equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tokenizers import Tokenizer

from training.data.prepare import Place, Preparation
from training.data.prepared import SPLITS, write_arrow
from training.data.split import split_by_class
from training.errors import DataError
from training.util.files import publish
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.sources import Sample, Source, read_source
from training.workloads.text_classification.splits import (
    ENCODER,
    TEXTS,
    TOKENIZER,
    label_type,
    write_split,
)
from training.workloads.text_classification.wordpiece import train_tokenizer


def prepare(data: Data, place: Place) -> Preparation:
    """The texts that `data` names, split; they are tokenised when they are written.

    Raises:
        DataError: the texts or the encoder can't be loaded or used.
    """
    source = read_source(data, place.reviews, place.files)
    splits = dict(zip(SPLITS, draw(source, data), strict=True))

    def write(draft: Path) -> dict[str, Any]:
        tokenizer = _tokenizer(data, place.files, [sample.text for sample in splits["train"]], draft)
        counts = {
            name: _write_split(draft / f"{name}.arrow", part, tokenizer, data.class_names)
            for name, part in splits.items()
        }
        for name, part in splits.items():
            texts = pa.array([sample.text for sample in part], pa.large_string())
            write_arrow(draft / TEXTS.format(split=name), pa.record_batch({"text": texts}))
        _write(draft / TOKENIZER, tokenizer.to_str(pretty=True).encode())
        return {
            "counts": counts,
            "vocabulary": tokenizer.get_vocab_size(),
            "repeated_texts": _repeated(splits),
        }

    # An encoder may have changed under its name: only its files identify it.
    return Preparation(
        source={"name": data.source, "sha256": source.sha256, "note": source.note},
        write=write,
        identified=data.tokenizer != "pretrained",
    )


def draw(source: Source, spec: Data) -> tuple[list[Sample], list[Sample]]:
    """The training and the validation split that `spec` asks for.

    Raises:
        DataError: there are fewer samples than asked for, or they are of one class only.
    """
    if source.validation is None:
        return _drawn(source.train, spec.train, spec.validation, spec)
    train, _ = _drawn(source.train, spec.train, 0, spec)
    validation, _ = _drawn(source.validation, spec.validation, 0, spec)
    return train, validation


def _drawn(
    samples: Sequence[Sample], train: int, validation: int, spec: Data
) -> tuple[list[Sample], list[Sample]]:
    labels = [sample.label for sample in samples]
    first, second = split_by_class(labels, train, validation, spec.seed, len(spec.class_names))
    return [samples[number] for number in first], [samples[number] for number in second]


def _tokenizer(spec: Data, folder: Path, texts: Sequence[str], draft: Path) -> Tokenizer:
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


def _write_split(
    path: Path, samples: Sequence[Sample], tokenizer: Tokenizer, classes: Sequence[str]
) -> dict[str, Any]:
    """Write one split as an Arrow file of a single batch; returns its counts."""
    encodings = tokenizer.encode_batch([sample.text for sample in samples])
    length = len(encodings[0].ids)
    flat_ids = [token for encoding in encodings for token in encoding.ids]
    flat_mask = [token for encoding in encodings for token in encoding.attention_mask]
    labels = pa.array([sample.label for sample in samples], label_type(len(classes)))
    write_split(path, pa.array(flat_ids, pa.int32()), pa.array(flat_mask, pa.int8()), labels, length)
    found = Counter(sample.label for sample in samples)
    return {
        "samples": len(samples),
        "classes": {name: found[number] for number, name in enumerate(classes)},
        "tokens": sum(flat_mask),  # padding not counted
        "truncated": sum(bool(encoding.overflowing) for encoding in encodings),
    }


def _repeated(splits: dict[str, list[Sample]]) -> dict[str, int]:
    """How many samples repeat an earlier one's text; they are kept, and reported."""
    train = Counter(sample.text for sample in splits["train"])
    validation = Counter(sample.text for sample in splits["validation"])
    return {
        "train": train.total() - len(train),
        "validation": validation.total() - len(validation),
        "validation_also_in_train": sum(count for text, count in validation.items() if text in train),
    }


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        publish(path, file.fileno())
