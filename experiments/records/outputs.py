"""What a run leaves behind, as it was brought home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.records.rank_use import RankUse
from experiments.records.record import RankGpu
from training.spec import explain


class Left(BaseModel):
    """What training leaves; it may say more than is used here."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class LeftTimes(Left):
    """Moments of one rank, Unix seconds by its node's clock."""

    process_start: float
    train_start: float
    train_end: float


class LeftRank(Left):
    """rank-<number>.json."""

    rank: Annotated[int, Field(ge=0)]
    local_rank: Annotated[int, Field(ge=0)]
    world_size: int
    host: str
    uid: int
    affinity: list[int]
    threads: int
    interop_threads: int
    omp_num_threads: str | None = Field(default=None, alias="OMP_NUM_THREADS")
    visible_gpus: str | None = Field(default=None, alias="CUDA_VISIBLE_DEVICES")
    gpu: RankGpu | None = None
    use: RankUse | None = None
    parameters: int | None = None
    cpu_capability: str
    versions: dict[str, str]
    environment_digest: str | None = None
    code_digest: str | None = None
    times: LeftTimes
    phases: dict[str, Annotated[float, Field(ge=0)]]
    train_s: Annotated[float, Field(ge=0)]
    steps: int
    weights_digest: str


class LeftEpoch(Left):
    """One epoch's figures, over all ranks."""

    epoch: Annotated[int, Field(ge=1)]
    train_loss: float | None = None  # None: not a number any more
    seconds: Annotated[float, Field(ge=0)]
    lr: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    validation_correct: int | None = None
    validation_count: int | None = None


class LeftResult(Left):
    """result.json, of rank 0."""

    status: str
    epochs: list[LeftEpoch]
    weights_digest: str
    validation_count: int


class LeftLaunch(Left):
    """launch.json, of the playbook that launched the run."""

    stack: str
    started: float
    ended: float
    exit_code: int
    command: list[str]
    nodes: list[str] = Field(default_factory=list)


class LeftPrepared(Left):
    """prepared.json, of a run that made its tokens itself."""

    started: float
    ended: float
    by: str
    rows: Annotated[int, Field(ge=0)]


class LeftLauncher(Left):
    """launcher.json, of a launcher that has a scheduler to ask."""

    queue_s: Annotated[float, Field(ge=0)]
    hosts: dict[str, str] = Field(default_factory=dict)  # node by the host names that ranks see, where others
    notes: list[str] = Field(default_factory=list)  # what the stack did that a reader of the times must know


class LeftUnreadable(Exception):
    """A file that was brought home is damaged."""


Kind = TypeVar("Kind", bound=Left)


def read_left(kind: type[Kind], path: Path) -> Kind | None:
    """What the file holds; None where it was not left.

    Raises:
        LeftUnreadable: it is damaged.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LeftUnreadable(f"{path.name} can't be read: {error.strerror}.") from error
    except ValidationError as error:
        raise LeftUnreadable(explain(error, f"{path.name}, as the run left it,")) from error
