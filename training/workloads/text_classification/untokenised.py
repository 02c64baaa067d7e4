"""Samples whose texts become token ids in the training loop, as in code without a preparation step."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tokenizers import Tokenizer

from training.data.prepared import read_batches

Tokens = dict[str, npt.NDArray[Any]]
"""What a model takes of each sample, by name: int32 `input_ids`, and int8 `attention_mask` and the like."""


@dataclass(frozen=True)
class Untokenised:
    """The texts of one split, memory-mapped, and the data set's own tokenizer."""

    texts: Any  # pyarrow.LargeStringArray, or chunks of it
    tokenizer: Tokenizer

    @classmethod
    def open(cls, texts: Path, tokenizer: Path) -> Untokenised:
        """The texts and the tokenizer that `prepare` wrote into these files."""
        # The tokenizer's own threads would take cores from others, and Python's forked data loaders switch
        # them off in the same way. The variable is read at every call.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        columns = [batch.column("text") for batch in read_batches(texts)]
        found = columns[0] if len(columns) == 1 else pa.chunked_array(columns)
        return cls(found, Tokenizer.from_file(str(tokenizer)))

    def tokens(self, rows: npt.NDArray[np.int64]) -> Tokens:
        """Ids and attention masks, both [samples, max_length], of the samples with the numbers `rows`."""
        encodings = self.tokenizer.encode_batch([self.texts[int(row)].as_py() for row in rows])
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int8)
        return {
            "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int32),
            "attention_mask": mask,
        }
