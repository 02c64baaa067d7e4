"""The trained model, as a folder in the form in which people load it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from training.checkpoint import CheckpointFolder
from training.errors import CheckpointError
from training.spec import RunSpec
from training.workload import open_workload


def export(spec: RunSpec, data: Path, out: Path, to: Path) -> Path:
    """Write the model of a run's newest good checkpoint into a new folder, as its workload does.

    Args:
        spec: the run.
        data: folder of its prepared data set.
        out: the run's folder.
        to: the new folder.

    Raises:
        CheckpointError: there is no good checkpoint, or `to` exists.
        DataError: the data set is not the run's.
        WorkloadError: the workload can't be used.
        OSError: `to` can't be written.
    """
    if to.exists():
        raise CheckpointError(f"{to} already exists; give a new folder.")
    checkpoints = CheckpointFolder(out / "checkpoints", spec.work.digest, spec.work.keep_checkpoints)
    name, faults = checkpoints.newest()
    if name is None:
        raise CheckpointError(" ".join([f"There is no good checkpoint in {checkpoints.path}.", *faults]))
    workload = open_workload(spec.work, data, spec.conditions, out)
    model = workload.model()
    model.load_state_dict(checkpoints.read(name)["model"])
    to.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".export-", dir=to.parent))
    try:
        workload.save_model(model, draft)
        draft.chmod(0o755)
        draft.rename(to)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return to
