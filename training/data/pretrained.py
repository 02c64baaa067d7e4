"""A pretrained model and its tokenizer, from the hub or from a folder, to ship with a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from training.data.hub import hub_error, reach_hub
from training.errors import DataError, first_line

KINDS: Final = {"encoder": "AutoModel", "decoder": "AutoModelForCausalLM"}
"""The class of transformers that loads each kind of model."""


@dataclass(frozen=True)
class Pretrained:
    """A model that was loaded."""

    name: str
    model: Any  # transformers.PreTrainedModel
    tokenizer: Any  # transformers.PreTrainedTokenizerFast

    def fast_tokenizer(self) -> Tokenizer:
        """Its tokenizer, which neither truncates nor pads."""
        tokenizer = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def save(self, folder: Path) -> None:
        """Write weights (safetensors), configuration and tokenizer, readable by everybody."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def load_pretrained(
    kind: str, name: str, revision: str, folder: Path, length: int, otherwise: str
) -> Pretrained:
    """The model that `name` says: a folder (relative to `folder`), or a name on the hub.

    Args:
        kind: one of `KINDS`.
        name: the folder's or the model's.
        revision: on the hub.
        folder: what the name of a folder is relative to.
        length: tokens that it must take.
        otherwise: what to do where the hub can't be reached, in words.

    Raises:
        DataError: it can't be loaded, has no fast tokenizer, or its parts don't fit together.
    """
    local = folder / name
    if local.is_dir():
        return _checked(kind, _load(kind, name, str(local), None, otherwise), length)
    if name.startswith((".", "/")):
        raise DataError(f"There is no folder {local} with a pretrained {kind}.")
    reach_hub()
    return _checked(kind, _load(kind, name, name, revision, otherwise), length)


def _load(kind: str, name: str, source: str, revision: str | None, otherwise: str) -> Pretrained:
    import torch
    import transformers

    at = {"revision": revision} if revision else {}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, use_fast=True, **at)
        model, info = getattr(transformers, KINDS[kind]).from_pretrained(
            source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False, **at
        )
    except Exception as error:  # whatever the hub's libraries raise
        if revision is None:
            raise DataError(
                f"The folder {source} holds no {kind} that can be loaded: {first_line(error):.200}"
            ) from error
        raise DataError(hub_error(source, error, f"give the folder of a copy, or {otherwise}")) from error
    if missing := sorted(info["missing_keys"]):
        raise DataError(
            f"The weights of {name} are incomplete: {len(missing)} tensors are missing, such as {missing[0]}."
        )
    return Pretrained(name, model, tokenizer)


def _checked(kind: str, found: Pretrained, length: int) -> Pretrained:
    config, tokenizer = found.model.config, found.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(f"{found.name} has no fast tokenizer; use another {kind}.")
    if len(tokenizer) > config.vocab_size:
        raise DataError(
            f"The vocabulary of {found.name} does not match its model: the tokenizer has {len(tokenizer)} "
            f"entries, the model's embedding {config.vocab_size}."
        )
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and length > positions:
        raise DataError(
            f"{found.name} takes {positions} tokens at most, but max_length is {length}: use a shorter one."
        )
    return found
