"""Samples whose texts become token ids in the training loop, as in code without a preparation step."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer

from training.data.prepared import read_batches
from training.workloads.text_classification.slow import slow_encoder

Tokens = dict[str, npt.NDArray[Any]]
"""What a model takes of each sample, by name: int32 `input_ids`, and int8 `attention_mask` and the like."""


@dataclass(frozen=True)
class Tokenizing:
    """How texts become ids; all ways give the same ids."""

    fast: bool = True  # the tokenizer in Rust, or transformers' in Python
    threads: Literal["one", "all", "stack"] = "one"  # of the fast one; stack: as the process finds it


@dataclass(frozen=True)
class Untokenised:
    """The texts of one split, memory-mapped, and the data set's own tokenizer."""

    texts: Any  # pyarrow.LargeStringArray, or chunks of it
    encode: Callable[[list[str]], Tokens]
    opened: tuple[Path, Path, Tokenizing]  # what `open` was given

    def __reduce__(self) -> tuple[Any, ...]:
        """Where it is unpickled, it is opened again: no text is sent, and a tokenizer's function can't be."""
        return Untokenised.open, self.opened

    @classmethod
    def open(cls, texts: Path, tokenizer: Path, how: Tokenizing) -> Untokenised:
        """The texts and the tokenizer that `prepare` wrote into these files.

        Raises:
            DataError: there is no slow tokenizer that does what this one does.
        """
        # By default without threads: they would take cores from others, and the tokenizer by itself switches
        # them off in processes that are forked after it was used. The variable is read at every call.
        if how.threads != "stack":
            os.environ["TOKENIZERS_PARALLELISM"] = "true" if how.threads == "all" else "false"
        columns = [batch.column("text") for batch in read_batches(texts)]
        found = columns[0] if len(columns) == 1 else pa.chunked_array(columns)
        encode = fast_encoder(tokenizer) if how.fast else slow_encoder(tokenizer)
        return cls(found, encode, (texts, tokenizer, how))

    def tokens(self, rows: npt.NDArray[np.int64]) -> Tokens:
        """Ids and attention masks, both [samples, max_length], of the samples with the numbers `rows`."""
        return self.encode([self.texts[int(row)].as_py() for row in rows])


def fast_encoder(file: Path) -> Callable[[list[str]], Tokens]:
    """What a tokenizer's file says, in Rust: texts to ids and masks, both [texts, max_length]."""
    tokenizer = Tokenizer.from_file(str(file))

    def encode(texts: list[str]) -> Tokens:
        encodings = tokenizer.encode_batch(texts)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int8)
        return {
            "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int32),
            "attention_mask": mask,
        }

    return encode
