"""A pretrained encoder and its tokenizer, from the hub or from a folder, to ship with the data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from training.data.hub import hub_error, reach_hub
from training.errors import DataError, first_line
from training.workloads.text_classification.settings import Data


@dataclass(frozen=True)
class Encoder:
    """An encoder that was loaded."""

    name: str
    model: Any  # transformers.PreTrainedModel
    tokenizer: Any  # transformers.PreTrainedTokenizerFast

    def fast_tokenizer(self, max_length: int) -> Tokenizer:
        """Its tokenizer, truncating and padding to `max_length` tokens."""
        tokenizer = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        tokenizer.enable_truncation(max_length)
        tokenizer.enable_padding(
            length=max_length, pad_id=self.tokenizer.pad_token_id, pad_token=self.tokenizer.pad_token
        )
        return tokenizer

    def save(self, folder: Path) -> None:
        """Write weights (safetensors), configuration and tokenizer."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def load_encoder(spec: Data, folder: Path) -> Encoder:
    """The encoder that `spec.pretrained` names: a folder (relative to `folder`), or a name on the hub.

    Raises:
        DataError: it can't be loaded, has no fast tokenizer, or its parts don't fit together.
    """
    assert spec.pretrained is not None
    local = folder / spec.pretrained
    if local.is_dir():
        return _checked(spec, _load(spec, str(local), None))
    if spec.pretrained.startswith((".", "/")):
        raise DataError(f"There is no folder {local} with a pretrained encoder.")
    reach_hub()
    return _checked(spec, _load(spec, spec.pretrained, spec.revision))


def _load(spec: Data, source: str, revision: str | None) -> Encoder:
    import torch
    from transformers import AutoModel, AutoTokenizer

    at = {"revision": revision} if revision else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, use_fast=True, **at)
        model, info = AutoModel.from_pretrained(
            source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False, **at
        )
    except Exception as error:  # whatever the hub's libraries raise
        if revision is None:
            raise DataError(
                f"The folder {source} holds no encoder that can be loaded: {first_line(error):.200}"
            ) from error
        otherwise = "give the folder of a copy, or use tokenizer: wordpiece-from-train"
        raise DataError(hub_error(source, error, otherwise)) from error
    if missing := sorted(info["missing_keys"]):
        raise DataError(
            f"The weights of {spec.pretrained} are incomplete: {len(missing)} tensors are missing, "
            f"such as {missing[0]}."
        )
    return Encoder(str(spec.pretrained), model, tokenizer)


def _checked(spec: Data, encoder: Encoder) -> Encoder:
    config, tokenizer = encoder.model.config, encoder.tokenizer
    if not getattr(tokenizer, "is_fast", False) or tokenizer.pad_token_id is None:
        raise DataError(f"{encoder.name} has no fast tokenizer with a padding token; use another encoder.")
    if len(tokenizer) > config.vocab_size:
        raise DataError(
            f"The vocabulary of {encoder.name} does not match its model: the tokenizer has {len(tokenizer)} "
            f"entries, the model's embedding {config.vocab_size}."
        )
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and spec.max_length > positions:
        raise DataError(
            f"{encoder.name} takes {positions} tokens at most, but max_length is {spec.max_length}: "
            "use a shorter one."
        )
    return encoder
