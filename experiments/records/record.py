"""Run records, one for each attempt at a run. Validated when written and when read.

`python -m experiments.records.record` prints their JSON schema (kept in experiments/records/schema/).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from experiments.cluster.environment import Environment
from experiments.cluster.quiet import Quiet
from experiments.records.rank_use import RankUse
from experiments.util.errors import UserError
from experiments.util.files import write_whole
from experiments.util.models import FiniteModel
from training.settings import Sha256
from training.spec import PHASES, RunSpec, explain

SCHEMA_VERSION: Final = 1
SCHEMA: Final = Path(__file__).parent / "schema" / f"record-{SCHEMA_VERSION}.json"
RECORD: Final = "record.json"
BY_STANDIN: Final = "stand-in: not measured"  # shown in the place of seconds that are not the stack's own
OF_TRAINING: Final = (
    *("train_s", "slowest_rank", "phases", "epochs", "weights_digest", "validation_correct"),
    *("validation_count", "ranks", "starts", "prepared"),
)
"""What training leaves in a record, and an empty program does not."""
SUM_TOLERANCE_S: Final = 1e-6  # between total_s and the sum of the phases: rounding of thirteen terms


def _is_every_phase(phases: dict[str, float]) -> dict[str, float]:
    if tuple(phases) != PHASES:
        raise ValueError(f"the phases must be {', '.join(PHASES)}, in this order")
    if not all(math.isfinite(seconds) for seconds in phases.values()):
        raise ValueError("the phases must be numbers of seconds")
    return phases


Phases = Annotated[
    dict[str, float],
    AfterValidator(_is_every_phase),
    WithJsonSchema(
        {
            "type": "object",
            "description": "Seconds of the slowest rank by phase; with prepared, they add up to total_s.",
            "properties": {name: {"type": "number"} for name in PHASES},
            "required": list(PHASES),
            "additionalProperties": False,
        }
    ),
]
Seconds = Annotated[float, Field(ge=0)]
Status = Literal["ok", "failed", "interrupted", "disturbed"]
"""disturbed: it reached its end, but something started ranks again, so that it measures nothing."""

VALIDATION: Final = "validation_"
TEST: Final = "test_"


@dataclass(frozen=True)
class Arithmetic:
    """What decides the last bits of equal work."""

    threads: tuple[int, ...]  # of each rank, or the one number that all have
    device: str
    bits: str
    libraries: str
    compiled: str  # the mode of torch.compile; "" without it
    # Of each rank, in rank order, as far as known; none where the run's kernels are portable.
    processors: tuple[str | None, ...]


class Epoch(FiniteModel):
    """The figures of one epoch."""

    epoch: int = Field(ge=1)
    train_loss: float | None = None  # None: not finite
    seconds: Seconds
    lr: float | None = None  # at its end
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    validation_correct: int | None = None
    validation_count: int | None = None
    metrics: dict[str, float | None] = Field(default_factory=dict)  # what else its workload computes
    test: dict[str, float | None] = Field(default_factory=dict)  # of the test split, after the last epoch

    def metric(self, name: str) -> float | None:
        """A metric of the validation split by its name; None if there is none, or it is not finite.

        `test_` before the name means that of the test split.
        """
        if name.startswith(TEST):
            return self.test.get(name.removeprefix(TEST))
        own: float | None = getattr(self, f"validation_{name}", None)
        return self.metrics.get(name) if own is None else own

    @model_validator(mode="before")
    @classmethod
    def _take_metrics(cls, content: Any) -> Any:
        """Training reports every metric as `<split>_<name>`, and each workload has its own."""
        if not isinstance(content, dict):
            return content
        rest = dict(content)
        for prefix, field in ((VALIDATION, "metrics"), (TEST, "test")):
            more = [name for name in rest if name.startswith(prefix) and name not in cls.model_fields]
            if more:
                rest[field] = {name.removeprefix(prefix): rest.pop(name) for name in more}
        return rest


class RankGpu(FiniteModel):
    """A rank's GPU while it trained, sampled by the rank's process with NVML once a second."""

    uuid: str
    name: str
    driver: str | None = None
    samples: int = 0
    utilisation_percent_mean: float | None = None
    memory_mb_max: float | None = None
    temperature_c_max: float | None = None
    sm_clock_mhz_min: float | None = None
    sm_clock_mhz_mean: float | None = None
    power_w_mean: float | None = None
    energy_j: float | None = None
    energy_by: str | None = None  # the GPU's own count, or mean power times time
    throttled: dict[str, float] = Field(default_factory=dict)  # share of the samples, by reason
    trouble: str | None = None  # why there are no samples, or not all


class StepTimes(FiniteModel):
    """How long the steps of training took on a rank."""

    steps: int
    median_ms: float
    p95_ms: float
    p99_ms: float
    longest_ms: float


class Compiled(FiniteModel):
    """What torch.compile made of the model on a rank."""

    seconds: Seconds  # that compiling took; they are in the phase other
    graphs: int = Field(ge=0)  # programs, for all shapes of batches and both passes
    breaks: list[str]  # why the model had to be parted: what lies between two graphs is not compiled


class Rank(FiniteModel):
    """Where and how one rank ran."""

    rank: int = Field(ge=0)
    local_rank: int = Field(ge=0)
    node: str | None  # the inventory's name; None where the host name belongs to no node
    host: str
    uid: int
    affinity: list[int]  # the cores it may run on
    threads: int
    interop_threads: int | None  # None: of a program with a loop of its own, it is not known
    omp_num_threads: str | None
    visible_gpus: str | None = None  # CUDA_VISIBLE_DEVICES, as its launcher set it
    gpu: RankGpu | None = None  # None on a CPU
    use: RankUse | None = None  # None where it was not read
    parameters: int | None = None  # of the model
    # What the work's gradient_sync came to; None: with one rank, a loop of its own, and in older records.
    gradient_sync: str | None = None
    compiled: Compiled | None = None  # None: nothing was
    cpu_capability: str
    versions: dict[str, str]
    environment_digest: str | None
    steps: int | None
    step_times: StepTimes | None = None  # older records have none
    train_s: Seconds
    weights_digest: str | None
    # By group and name, what it was given and runs on, just before it trained; None: older records have none.
    census: dict[str, dict[str, str]] | None = None


class Launch(FiniteModel):
    """launch.json: how the stack was started on the cluster, and how it ended."""

    stack: str
    started: float  # Unix seconds, by the clock of the node that submitted
    ended: float
    exit_code: int
    command: list[str]
    nodes: list[str]  # in rank order, where known
    # Those that the stack's command ran on, by the inventory's names where known; older records have none.
    hosts: list[str] = Field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the stack's command took, by the clock of the node that submitted."""
        return self.ended - self.started


class Prepared(FiniteModel):
    """prepared.json: how the run made its tokens itself, before its ranks started."""

    started: float  # Unix seconds, by the clock of the node that initiated it
    ended: float
    by: str  # who did it, in words
    rows: int = Field(ge=0)  # samples

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0.0, self.ended - self.started)

    def seconds_within(self, started: float, ended: float) -> float:
        """How much of it lies between two moments."""
        return max(0.0, min(self.ended, ended) - max(self.started, started))


class Start(FiniteModel):
    """One start of one rank, by the mark that it left."""

    rank: int = Field(ge=0)
    started: float  # Unix seconds, by its node's clock
    node: str | None = None  # the inventory's name; None where the host name belongs to no node
    host: str
    boot: str  # the kernel's id of the node's boot
    by: str  # who started it, in words


class ConcurrentStart(FiniteModel):
    """The runs that started at the same moment on request, so that none of them was alone."""

    why: Literal[
        "side by side", "users"
    ]  # on different workers, to save time; or to see them share a cluster
    runs: Annotated[list[str], Field(min_length=2)]  # all of them, in the order of their places
    place: int = Field(ge=0)  # of this one
    begun: AwareDatetime  # the same in all their records


class Record(FiniteModel):
    """One attempt at one run."""

    schema_version: Literal[1] = SCHEMA_VERSION
    matrix: str
    campaign: str
    run_id: str
    attempt: int = Field(ge=1)
    specification: RunSpec
    work_digest: Sha256
    conditions_digest: Sha256
    code_digest: Sha256

    status: Status
    reason: str | None  # one sentence; None exactly when the status is ok
    started: AwareDatetime  # UTC
    ended: AwareDatetime | None  # None: the controller died without recording it

    total_s: Seconds | None  # from submission until the data is back, by the controller's monotonic clock
    train_s: Seconds | None  # inside the training function, the slowest rank's
    slowest_rank: int | None
    phases: Phases | None
    epochs: list[Epoch]
    weights_digest: str | None  # None in a run that is ok: its program reported none
    validation_correct: int | None  # at the end
    validation_count: int | None

    ranks: list[Rank]
    starts: list[Start] | None = None  # every start of every rank; None: not marked, in older records
    launch: Launch | None
    prepared: Prepared | None = None  # None: the run's tokens were made before
    standin: str | None = None  # what stood in for the stack's software, a sentence; None: it was the stack
    environment: Environment
    quiet: Quiet | None = None  # how quiet the nodes were when it began; None: not checked
    together: ConcurrentStart | None = None  # None: it was alone
    notes: list[str]  # what a reader of the figures should know
    files: dict[str, Sha256]  # all collected outputs

    @property
    def ok(self) -> bool:
        """Whether the run counts."""
        return self.status == "ok"

    @property
    def quality(self) -> float | None:
        """The metric by which people judge the trained model, at the end; None if it is not known."""
        name = self.specification.work.data.metric
        return self.epochs[-1].metric(name) if self.ok and self.epochs else None

    @property
    def disturbed(self) -> str | None:
        """By what it was disturbed on purpose, in words; None: by nothing."""
        trace = self.specification.conditions.trace
        return None if trace is None else f"a trace of its {trace.name}"

    @property
    def why_not_timed(self) -> str | None:
        """Why its times are not those of its stack, as a sentence; None: they are.

        They are then in no mean, comparison, plot or estimate. Its weights and metrics count all the same.
        """
        if self.standin is not None:
            return self.standin
        return f"Disturbed by {self.disturbed}." if self.disturbed else None

    @property
    def timed(self) -> bool:
        """Whether its times are those of its stack."""
        return self.why_not_timed is None

    def without_times(self) -> Record:
        """The same without its times, for figures that must not take them."""
        return self.model_copy(update={"train_s": None, "total_s": None, "phases": None})

    @property
    def processors(self) -> tuple[str | None, ...]:
        """What each rank computed on, in rank order: its GPU, or its node's processor; None if not known.

        The last bits of weights depend on them, unless the run's kernels are portable.
        """
        if self.specification.conditions.device == "cuda":
            return tuple(rank.gpu.name if rank.gpu else None for rank in self.ranks)
        nodes = self.environment.nodes
        return tuple(nodes[rank.node].cpu if rank.node in nodes else None for rank in self.ranks)

    @property
    def arithmetic(self) -> Arithmetic:
        """What its last bits depend on: equal work can end with equal bits where this is equal."""
        given = self.specification.conditions
        processors = () if given.bits == "portable" else self.processors
        return Arithmetic(
            self.threads, given.device, given.bits, given.libraries, given.compile or "", processors
        )

    @property
    def threads(self) -> tuple[int, ...]:
        """The compute threads of each rank, in rank order, or the one number that all have."""
        asked = self.specification.conditions.threads
        found = tuple(rank.threads for rank in self.ranks) if asked == "stack" else (asked,)
        return found[:1] if len(set(found)) == 1 else found

    @property
    def among_users(self) -> bool:
        """Whether it started together with other users' runs, to be compared with runs that start alone."""
        return self.together is not None and self.together.why == "users"

    @model_validator(mode="after")
    def _hangs_together(self) -> Record:
        specification = self.specification
        if self.run_id != specification.run_id:
            raise ValueError(
                f"run_id is {self.run_id}, but the specification makes it {specification.run_id}"
            )
        if self.work_digest != specification.work.digest:
            raise ValueError("work_digest is not that of the specification's work")
        if self.conditions_digest != specification.conditions.digest:
            raise ValueError("conditions_digest is not that of the specification's conditions")
        if self.ok != (self.reason is None):
            raise ValueError("a reason is given exactly when the status is not ok")
        started = [each.rank for each in self.starts or []]
        if self.ok and len(set(started)) < len(started):
            raise ValueError("a run that is ok has one start of each rank")
        if self.together is not None and self.together.runs[self.together.place :][:1] != [self.run_id]:
            raise ValueError(f"of the runs that began together, number {self.together.place} is not this one")
        if self.phases is not None:
            total = sum(self.phases.values()) + (self.prepared.seconds if self.prepared else 0.0)
            if self.total_s is None or abs(total - self.total_s) > SUM_TOLERANCE_S:
                raise ValueError(f"the phases add up to {total:.6f} s, but total_s is {self.total_s}")
        if self.ok and specification.bare:
            lacking = [name for name in ("ended", "total_s", "launch") if getattr(self, name) is None]
            if lacking:
                raise ValueError(f"a run that is ok must have {', '.join(lacking)}")
            if given := [name for name in OF_TRAINING if getattr(self, name)]:
                raise ValueError(f"a run of an empty program that is ok has no {', '.join(given)}")
        elif self.ok:
            needed = ["ended", "total_s", "train_s", "slowest_rank", "phases", "launch"]
            if not specification.work.data.has_own_loop:
                needed.append("weights_digest")
            lacking = [name for name in needed if getattr(self, name) is None]
            if lacking:
                raise ValueError(f"a run that is ok must have {', '.join(lacking)}")
            if len(self.ranks) != specification.work.world_size:
                raise ValueError(f"it has {len(self.ranks)} of {specification.work.world_size} ranks")
        return self


def write_record(record: Record, folder: Path) -> None:
    """Writes record.json atomically into an attempt's folder. An existing record is never replaced.

    Raises:
        UserError: there is one, or the record is not valid.
    """
    write_once(record, folder / RECORD, f"The record {folder / RECORD}")


def write_once(content: FiniteModel, path: Path, name: str) -> None:
    """Writes what is kept as JSON, atomically. An existing file is never replaced.

    Args:
        content: what is kept.
        path: of the new file.
        name: what it is, for messages.

    Raises:
        UserError: the file exists, or its content would not be valid.
    """
    if path.exists():
        raise UserError(f"{name} already exists; it is never replaced.")
    text = content.model_dump_json(indent=2) + "\n"
    try:
        type(content).model_validate_json(text)  # never write what can't be read again
    except ValidationError as error:
        raise UserError(explain(error, name)) from error
    write_whole(path, text)


def read_record(path: Path) -> Record:
    """The record in the file `path`.

    Raises:
        UserError: it can't be read or is not valid.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"The record {path} can't be read: {error.strerror}.") from error
    try:
        return parse_record(content, path)
    except _Damaged as error:
        raise UserError(
            f"{error} Move this file away, not its folder: the next `run` records the attempt as interrupted."
        ) from error


class _Damaged(UserError):
    """The content of the file is not a record, whatever the checkout."""


def parse_record(content: bytes, path: Path) -> Record:
    """The record in `content`; `path` is only for the message.

    Raises:
        UserError: it is not valid.
    """
    try:
        version = json.loads(content)["schema_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise _Damaged(
            f"The record {path} is damaged: it is not a JSON object with a schema_version."
        ) from error
    if version != SCHEMA_VERSION:
        raise UserError(
            f"The record {path} has schema version {version!r}; this checkout reads version {SCHEMA_VERSION}."
        )
    try:
        return Record.model_validate_json(content)
    except ValidationError as error:
        raise _Damaged(explain(error, f"The record {path}")) from error


def utc_text(moment: datetime) -> str:
    """A time as shown to users: `2026-11-21 11:45:00 UTC`."""
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def schema() -> dict[str, Any]:
    """The JSON schema of records."""
    content = Record.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"trainbed run record, version {SCHEMA_VERSION}",
        **{key: value for key, value in content.items() if key != "title"},
    }


def schema_text() -> str:
    """The text of the schema file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
