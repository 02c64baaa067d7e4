"""Texts to token ids. Equal settings and texts give equal bytes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tokenizers import Tokenizer

from training.data.prepare import Place, Preparation
from training.data.prepared import SPLITS, write_arrow
from training.errors import DataError
from training.util.files import publish
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.sources import Review, Source, read_source
from training.workloads.text_classification.splits import ENCODER, TEXTS, TOKENIZER, write_split
from training.workloads.text_classification.wordpiece import train_tokenizer


def prepare(data: Data, place: Place) -> Preparation:
    """The texts that `data` names, split; they are tokenised when they are written.

    Raises:
        DataError: the texts or the encoder can't be loaded or used.
    """
    source = read_source(data, place.reviews, place.files)
    splits = dict(zip(SPLITS, draw(source, data), strict=True))

    def write(draft: Path) -> dict[str, Any]:
        tokenizer = _tokenizer(data, place.files, [review.text for review in splits["train"]], draft)
        counts = {
            name: _write_split(draft / f"{name}.arrow", part, tokenizer) for name, part in splits.items()
        }
        for name, part in splits.items():
            texts = pa.array([review.text for review in part], pa.large_string())
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


def draw(source: Source, spec: Data) -> tuple[list[Review], list[Review]]:
    """The training and the validation split that `spec` asks for.

    Raises:
        DataError: there are fewer reviews than asked for, or they are of one class only.
    """
    if source.validation is None:
        return split(source.train, spec.train, spec.validation, spec.seed)
    train, _ = split(source.train, spec.train, 0, spec.seed)
    validation, _ = split(source.validation, spec.validation, 0, spec.seed)
    return train, validation


def split(
    reviews: Sequence[Review], train: int, validation: int, seed: int
) -> tuple[list[Review], list[Review]]:
    """Two splits of these sizes with the classes in proportion, drawn and shuffled by the seed.

    Raises:
        DataError: there are fewer reviews than asked for, or they are of one class only.
    """
    if train + validation > len(reviews):
        asked = (
            f"{train} reviews to train and {validation} to validate were"
            if validation
            else f"{train} reviews were"
        )
        raise DataError(f"{asked} asked for, but there are only {len(reviews)}; ask for fewer.")
    classes = [[review for review in reviews if review.label == label] for label in (0, 1)]
    if not all(classes):
        label = 0 if classes[0] else 1
        raise DataError(
            f"All {len(reviews)} reviews have the label {label}; two classes are needed to learn from."
        )
    draw = random.Random(seed)
    for members in classes:
        draw.shuffle(members)
    # How many of the first n reviews drawn are positive; what rounding leaves over is in the second split.
    positive = [n * len(classes[1]) // len(reviews) for n in (train, train + validation)]
    negative = [train - positive[0], train + validation - positive[1]]
    first = classes[0][: negative[0]] + classes[1][: positive[0]]
    second = classes[0][negative[0] : negative[1]] + classes[1][positive[0] : positive[1]]
    draw.shuffle(first)
    draw.shuffle(second)
    return first, second


def _tokenizer(spec: Data, folder: Path, texts: Sequence[str], draft: Path) -> Tokenizer:
    """The tokenizer that `spec` asks for; a pretrained encoder is saved in `draft`, too."""
    if spec.tokenizer != "pretrained":
        return train_tokenizer(texts, spec)
    from training.workloads.text_classification.encoder import load_encoder

    encoder = load_encoder(spec, folder)
    encoder.save(draft / ENCODER)
    for path in (draft / ENCODER).rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (draft / ENCODER).chmod(0o755)
    return encoder.fast_tokenizer(spec.max_length)


def _write_split(path: Path, reviews: Sequence[Review], tokenizer: Tokenizer) -> dict[str, int]:
    """Write one split as an Arrow file of a single batch; returns its counts."""
    encodings = tokenizer.encode_batch([review.text for review in reviews])
    length = len(encodings[0].ids)
    flat_ids = [token for encoding in encodings for token in encoding.ids]
    flat_mask = [token for encoding in encodings for token in encoding.attention_mask]
    labels = pa.array([review.label for review in reviews], pa.int8())
    write_split(path, pa.array(flat_ids, pa.int32()), pa.array(flat_mask, pa.int8()), labels, length)
    positive = sum(review.label for review in reviews)
    return {
        "reviews": len(reviews),
        "positive": positive,
        "negative": len(reviews) - positive,
        "tokens": sum(flat_mask),  # padding not counted
        "truncated": sum(bool(encoding.overflowing) for encoding in encodings),
    }


def _repeated(splits: dict[str, list[Review]]) -> dict[str, int]:
    """How many reviews repeat an earlier one's text; they are kept, and reported."""
    train = Counter(review.text for review in splits["train"])
    validation = Counter(review.text for review in splits["validation"])
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
