"""The trained model, as a folder in the form in which people load it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import torch

from training.checkpoint import CheckpointFolder
from training.errors import CheckpointError
from training.spec import Conditions, RunSpec
from training.trained import read_model
from training.util.files import write_json
from training.weights import weights_digest
from training.workload import open_workload

NOTE: Final = "trainbed.json"


def export(spec: RunSpec, data: Path, out: Path, to: Path) -> Path:
    """Write a run's model into a new folder, as its workload does, with a note on where it comes from.

    It is the one that the run kept (`save`), or else that of its newest good checkpoint.

    Args:
        spec: the run.
        data: folder of its prepared data set.
        out: the run's folder.
        to: the new folder.

    Raises:
        CheckpointError: there is no model, it is damaged or from another work, or `to` exists.
        DataError: the data set is not the run's.
        WorkloadError: the workload can't be used.
        OSError: `to` can't be written.
    """
    if to.exists():
        raise CheckpointError(f"{to} already exists; give a new folder.")
    state, facts = read_model(out) or _checkpoint(spec, out)
    if facts["work_digest"] != spec.work.digest:
        raise CheckpointError(
            f"The model in {out} is from another work ({facts['work_digest'][:8]}, not "
            f"{spec.work.digest[:8]}): give the specification that it was trained with."
        )
    workload = open_workload(spec.work, data, Conditions(), out)
    model = workload.model()
    model.load_state_dict(state)
    to.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".export-", dir=to.parent))
    try:
        workload.save_model(model, draft)
        write_json(draft / NOTE, {"run_id": spec.run_id, "model": workload.model_name()} | facts)
        draft.chmod(0o755)
        draft.rename(to)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return to


def _checkpoint(spec: RunSpec, out: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The weights of the newest good checkpoint, and facts on them."""
    checkpoints = CheckpointFolder(out / "checkpoints", spec.work.digest, spec.work.keep_checkpoints)
    name, faults = checkpoints.newest()
    if name is None:
        none = f"{out} has neither a model (save: last, or best) nor a good checkpoint."
        raise CheckpointError(" ".join([none, *faults]))
    saved = checkpoints.read(name)
    state: dict[str, torch.Tensor] = saved["model"]
    position = {"epoch": len(saved["epochs"]), "steps": saved["steps"]}
    return state, position | {"work_digest": spec.work.digest, "weights_digest": weights_digest(state)}
