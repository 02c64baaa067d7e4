"""BERT's tokenizer as transformers has it in Python, for whoever wants to know what that costs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.errors import DataError

KIND = ("WordPiece", "BertNormalizer", "BertPreTokenizer")


def slow_encoder(file: Path) -> Callable[[list[str]], dict[str, npt.NDArray[Any]]]:
    """What a tokenizer's file says, in Python: texts to ids and masks, both [texts, max_length].

    Raises:
        DataError: the file describes another tokenizer than BERT's.
    """
    described = json.loads(file.read_text(encoding="utf-8"))
    normalizer = described["normalizer"] or {}
    kind = (
        described["model"]["type"],
        normalizer.get("type"),
        (described["pre_tokenizer"] or {}).get("type"),
    )
    if kind != KIND:
        raise DataError(
            f"fast_tokenizer: false takes BERT's tokenizer, and {file} is another one "
            f"({', '.join(map(str, kind))}); leave it out."
        )
    vocabulary: dict[str, int] = described["model"]["vocab"]
    tokenizer = _tokenizer(vocabulary, normalizer)
    length = int(described["truncation"]["max_length"])

    def encode(texts: list[str]) -> dict[str, npt.NDArray[Any]]:
        found = tokenizer(texts, padding="max_length", truncation=True, max_length=length)
        return {
            "input_ids": np.array(found["input_ids"], dtype=np.int32),
            "attention_mask": np.array(found["attention_mask"], dtype=np.int8),
        }

    return encode


def _tokenizer(vocabulary: dict[str, int], normalizer: dict[str, Any]) -> Any:
    # Not at the top: processes that only use the fast one need not wait for transformers.
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    slow: Any = BertTokenizerLegacy
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.txt"  # which it reads at once
        file.write_text("".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.__getitem__)))
        tokenizer = slow(
            str(file),
            do_lower_case=normalizer["lowercase"],
            tokenize_chinese_chars=normalizer["handle_chinese_chars"],
            strip_accents=normalizer["strip_accents"],
        )
    if dict(tokenizer.vocab) != vocabulary:
        raise DataError(
            "This vocabulary has entries that transformers' Python tokenizer can't read; leave "
            "fast_tokenizer: false out."
        )
    return tokenizer
