"""A pretrained model, from the hub or from a folder, to ship with a data set."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tokenizers import Tokenizer

from training.data.hub import find_commit, hub_error
from training.errors import DataError, first_line
from training.settings import DataSettings, PretrainedData
from training.util.digest import file_digest, files_in

KINDS: Final = {"encoder": "AutoModel", "decoder": "AutoModelForCausalLM", "network": "AutoModel"}
"""The class of transformers that loads each kind of model."""

Loaded = TypeVar("Loaded")


@dataclass(frozen=True)
class Pretrained:
    """A model that was loaded, and its tokenizer."""

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
        save_readable(self.model, folder)
        save_readable(self.tokenizer, folder)


@dataclass(frozen=True)
class Place:
    """Where a pretrained model is, and what people call it."""

    kind: str  # one of `KINDS`
    name: str  # as the user wrote it
    source: str  # for transformers: a folder, or a name on the hub
    commit: str | None  # on the hub; None = a folder
    identity: dict[str, str]  # its `commit`, or the folder's `sha256`; empty if settings say the commit
    otherwise: str  # what to do where it can't be had from the hub, in words

    def load(self, what: Callable[..., Loaded], **settings: Any) -> Loaded:
        """Call one of transformers' functions that load something.

        Raises:
            DataError: it can't be loaded.
        """
        at = {"revision": self.commit} if self.commit else {}
        try:
            return what(self.source, **at, **settings)
        except Exception as error:  # whatever the hub's libraries raise
            if self.commit is None:
                raise DataError(
                    f"The folder {self.source} holds no {self.kind} that can be loaded: "
                    f"{first_line(error):.200}"
                ) from error
            raise DataError(hub_error(self.source, error, self.otherwise)) from error

    def model(self) -> Any:
        """The model, a `transformers.PreTrainedModel` in fp32.

        Raises:
            DataError: it can't be loaded, or its weights are incomplete.
        """
        import torch
        import transformers

        model, info = self.load(
            getattr(transformers, KINDS[self.kind]).from_pretrained,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        if missing := sorted(info["missing_keys"]):
            raise DataError(
                f"The weights of {self.name} are incomplete: {len(missing)} tensors are missing, "
                f"such as {missing[0]}."
            )
        return model


def find_pretrained(data: PretrainedData, folder: Path, otherwise: str) -> Place | None:
    """Where the model is that `data` name, a folder or the hub; None if they name none.

    Args:
        data: with its name, and its revision on the hub.
        folder: what the name of a folder is relative to.
        otherwise: what to do without one, in words.

    Raises:
        DataError: there is no such folder, or the commit on the hub can't be found out.
    """
    kind, name = data.PRETRAINED, data.pretrained
    if name is None:
        return None
    local = folder / name
    if local.is_dir():
        return Place(kind, name, str(local), None, {"sha256": _content(local)}, otherwise)
    if name.startswith((".", "/")):
        raise DataError(f"There is no folder {local} with a pretrained {kind}.")
    otherwise = f"give the folder of a copy, or {otherwise}"
    commit, _ = find_commit("model", name, data.revision, otherwise)
    identity = {} if commit == data.revision else {"commit": commit}
    return Place(kind, name, name, commit, identity, otherwise)


def _content(folder: Path) -> str:
    """SHA-256 of names and contents, file by file: a model may be larger than the memory."""
    sha = hashlib.sha256()
    for name, _ in files_in(folder):
        sha.update(f"{name} {file_digest(folder / name)}\n".encode())
    return sha.hexdigest()


def with_pretrained(source: dict[str, str], place: Place | None) -> dict[str, Any]:
    """The description of a source, and of the model that goes with it where settings do not identify that."""
    if place is None or not place.identity:
        return dict(source)
    at = f" The {place.kind} {place.name} is at commit {place.commit}." if place.commit else ""
    return source | {"pretrained": place.identity, "note": f"{source['note']}{at}"}


def load_with_tokenizer(place: Place, data: DataSettings) -> Pretrained:
    """A model and its tokenizer, which must take as many tokens as samples of `data` have.

    Raises:
        DataError: it can't be loaded, has no fast tokenizer, or its parts don't fit together.
    """
    import transformers

    tokenizer = place.load(transformers.AutoTokenizer.from_pretrained, use_fast=True)
    found = Pretrained(place.name, place.model(), tokenizer)
    config = found.model.config
    if not getattr(tokenizer, "is_fast", False):
        raise DataError(f"{found.name} has no fast tokenizer; use another {place.kind}.")
    if len(tokenizer) > config.vocab_size:
        raise DataError(
            f"The vocabulary of {found.name} does not match its model: the tokenizer has {len(tokenizer)} "
            f"entries, the model's embedding {config.vocab_size}."
        )
    positions = getattr(config, "max_position_embeddings", None)
    length = data.tokens_per_sample
    if positions is not None and length is not None and length > positions:
        raise DataError(
            f"{found.name} takes {positions} tokens at most, but {data.length_setting} is {length}: use a "
            "shorter one."
        )
    return found


def save_readable(saved: Any, folder: Path) -> None:
    """Write what transformers saves into a folder, readable by everybody."""
    saved.save_pretrained(folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
