"""The output files of a run, as collected from the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, RootModel, ValidationError

from experiments.records.record import Epoch, Rank, Seconds
from experiments.util.models import FiniteModel
from training.spec import explain


class RankTimes(FiniteModel):
    """Moments of one rank, Unix seconds by its node's clock."""

    process_start: float
    train_start: float
    train_end: float


class RankFile(Rank):
    """rank-<number>.json: what the record keeps of a rank, and what its run is judged by."""

    node: str | None = None  # a rank does not know the inventory's name of its node
    omp_num_threads: str | None = Field(alias="OMP_NUM_THREADS")
    visible_gpus: str | None = Field(default=None, alias="CUDA_VISIBLE_DEVICES")
    world_size: int
    code_digest: str | None
    times: RankTimes
    phases: dict[str, Seconds]

    def to_record(self, node: str | None, census: CensusFile | None) -> Rank:
        """What the record keeps of it; `node` is the inventory's name of the node that it ran on."""
        own = {"node": node, "census": census.root if census else None}
        return Rank(**self.model_dump(include=set(Rank.model_fields)) | own)


class CensusFile(RootModel[dict[str, dict[str, str]]]):
    """census-<number>.json: what was given to a rank's process, and what it runs on, by group and name."""


class ResultFile(FiniteModel):
    """result.json, of rank 0."""

    status: str
    epochs: list[Epoch]
    weights_digest: str | None
    validation_count: int | None


class LauncherFile(FiniteModel):
    """launcher.json, from launchers that can ask a scheduler."""

    queue_s: Seconds
    hosts: dict[str, str] = Field(default_factory=dict)  # node by the host name that ranks see, if different
    notes: list[str] = Field(default_factory=list)  # what the stack did that matters for the times
    begun_again: str | None = None  # that the stack began the run more than once, in a sentence
    standin: str | None = None  # what stood in for the stack's own software, a sentence; None: nothing


class BrokenFile(RootModel[dict[str, str]]):
    """broken.json: stacks that could not be used when the run began, with the reasons."""


class DamagedOutput(Exception):
    """An output file is damaged."""


Output = TypeVar("Output", bound=BaseModel)


def read_output(kind: type[Output], path: Path) -> Output | None:
    """The content of the file; None if the run did not leave it. Fields not used here are ignored.

    Raises:
        DamagedOutput: it is damaged.
    """
    try:
        return kind.model_validate_json(path.read_bytes(), extra="ignore")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedOutput(f"{path.name} can't be read: {error.strerror}.") from error
    except ValidationError as error:
        raise DamagedOutput(explain(error, f"{path.name}, as the run left it,")) from error
