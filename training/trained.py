"""The trained model that a run keeps in its folder: its weights, and a note on where they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch

from training.errors import CheckpointError
from training.util.digest import file_digest
from training.util.files import replacing, write_json
from training.util.tensors import serialised

FOLDER: Final = "model"
NOTE: Final = "model.json"


def write_model(run: Path, state: dict[str, torch.Tensor], epoch: int, facts: dict[str, Any]) -> None:
    """Keep a model in a run's folder instead of an earlier one; whoever reads it gets either whole.

    Args:
        run: the run's folder.
        state: the model's `state_dict`.
        epoch: the epoch after which it was like this.
        facts: for the note.

    Raises:
        CheckpointError: it can't be written; the earlier one is untouched.
    """
    folder = run / FOLDER
    weights = folder / f"weights-{epoch:06d}.pt"
    try:
        folder.mkdir(exist_ok=True)
        with replacing(weights) as draft:
            draft.write_bytes(serialised({name: tensor.detach().cpu() for name, tensor in state.items()}))
            digest = file_digest(draft)
        write_json(folder / NOTE, {"file": weights.name, "sha256": digest, "epoch": epoch} | facts)
        for old in folder.glob("weights-*.pt"):
            if old != weights:
                old.unlink()
    except OSError as error:
        raise CheckpointError(f"The trained model can't be written to {folder}: {error}") from error


def read_model(run: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """The `state_dict` and the facts of the model that a run kept; None if it kept none.

    Raises:
        CheckpointError: it is damaged.
    """
    folder = run / FOLDER
    try:
        facts: dict[str, Any] = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        weights, digest = folder / facts.pop("file"), facts.pop("sha256")
        if file_digest(weights) != digest:
            raise CheckpointError(f"The model {weights} is damaged: it is not what was written.")
        state: dict[str, torch.Tensor] = torch.load(weights, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        if not (folder / NOTE).exists():
            return None
        raise CheckpointError(f"The model in {folder} is incomplete: {error.filename} is missing.") from error
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"The model in {folder} can't be read ({error!r}).") from error
    return state, facts
