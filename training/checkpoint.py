"""Checkpoints: folders that are complete or absent, verified when read, the newest good one first."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import torch

from training.errors import CheckpointError, OtherWorkError, first_line
from training.session import Position
from training.util.digest import file_digest
from training.util.files import publish, write_json
from training.util.tensors import serialised

FORMAT: Final = 1
STATE: Final = "state.pt"
DESCRIPTION: Final = "checkpoint.json"


def write_checkpoint(folder: Path, state: dict[str, Any], work_digest: str, position: Position) -> None:
    """Write a checkpoint's two files into `folder`, which must exist; the description comes last.

    Raises:
        OSError: it can't be written.
    """
    content = serialised(state)
    path = folder / STATE
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        publish(path, file.fileno())
    description = {
        "format": FORMAT,
        "work_digest": work_digest,
        "steps": position.steps,
        "epochs": position.epochs,
        "torch": torch.__version__,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    write_json(folder / DESCRIPTION, description)


def read_checkpoint(folder: Path, work_digest: str) -> dict[str, Any]:
    """The state in a checkpoint's folder, tensors on the CPU; read as plain data, so it can't run code.

    Raises:
        OtherWorkError: it is from another work.
        CheckpointError: it is incomplete, has changed, or is not one of our checkpoints.
    """
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        kind, found, digest = description["format"], description["work_digest"], description["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder} is not a checkpoint: its {DESCRIPTION} can't be read ({error!r})."
        ) from error
    if kind != FORMAT:
        raise CheckpointError(f"{folder} has the checkpoint format {kind!r}, not {FORMAT}.")
    if found != work_digest:
        raise OtherWorkError(
            f"The checkpoint {folder} is from another work ({found[:8]}, not {work_digest[:8]}): "
            "give this run a folder of its own, or use the specification that the checkpoint was made with."
        )
    try:
        if file_digest(folder / STATE) != digest:
            raise CheckpointError(f"The checkpoint {folder} is damaged: its {STATE} is not what was written.")
        state: dict[str, Any] = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"The checkpoint {folder} does not hold plain data ({first_line(error):.120})."
        ) from error
    except OSError as error:
        raise CheckpointError(f"The checkpoint {folder} can't be read: {error.strerror}.") from error
    return state


class CheckpointFolder:
    """The checkpoints of one run, in a folder that all ranks share; one rank writes."""

    def __init__(self, path: Path, work_digest: str, keep: int) -> None:
        """Nothing is created or read yet; the newest `keep` checkpoints are kept."""
        self.path = path
        self._work_digest = work_digest
        self._keep = keep

    def write(self, state: dict[str, Any], position: Position) -> None:
        """Save `state` in a folder beside the target, then rename it, and only then remove older checkpoints.

        Raises:
            CheckpointError: it can't be written; earlier checkpoints are untouched.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=".new-", dir=self.path))
        except OSError as error:
            raise CheckpointError(self._unwritable(position, error)) from error
        try:
            write_checkpoint(draft, state, self._work_digest, position)
            draft.chmod(0o755)  # mkdtemp's own mode shuts everybody else out
            target = self.path / position.name
            if target.exists():  # it is damaged, or training would have resumed from it
                self._remove(target)
            draft.rename(target)
            _sync(self.path)
        except OSError as error:
            raise CheckpointError(self._unwritable(position, error)) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        for old in self._names()[: -self._keep]:
            self._remove(self.path / old)

    def newest(self) -> tuple[str | None, list[str]]:
        """Name of the newest good checkpoint, and what is wrong with any newer ones.

        Raises:
            OtherWorkError: a good one is from another work.
        """
        faults = []
        for name in reversed(self._names()):
            try:
                self.read(name)
            except OtherWorkError:
                raise
            except CheckpointError as error:
                faults.append(str(error))
            else:
                return name, faults
        return None, faults

    def read(self, name: str) -> dict[str, Any]:
        """The state in one of the checkpoints (errors: `read_checkpoint`)."""
        return read_checkpoint(self.path / name, self._work_digest)

    def clean(self) -> None:
        """Remove what a killed writer left unfinished."""
        for pattern in (".new-*", ".old-*"):
            for leftover in self.path.glob(pattern):
                shutil.rmtree(leftover)

    def _names(self) -> list[str]:
        return sorted(path.name for path in self.path.glob("*") if not path.name.startswith("."))

    def _remove(self, path: Path) -> None:
        # Renamed first: a reader must not find a half-removed checkpoint.
        gone = Path(tempfile.mkdtemp(prefix=".old-", dir=self.path))
        path.rename(gone / path.name)
        shutil.rmtree(gone)

    def _unwritable(self, position: Position, error: OSError) -> str:
        return (
            f"The checkpoint {self.path / position.name} can't be written: {error.strerror}; "
            "earlier checkpoints are untouched."
        )


def _sync(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
