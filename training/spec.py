"""The run specification: what a run is, typed, frozen, validated, and hashed.

A run is a *stack* doing a *work* under *conditions*. Runs of the same work on different stacks are compared,
and must end with equal weights; for their times to be comparable, their conditions must be equal.

This module needs only pydantic, so that a controller without torch can plan runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from training.bits import PORTABLE, Bits
from training.rank_environment import RankEnvironment
from training.registry import DEFAULT, NAME, UnknownData, UnknownModel, settings_of
from training.settings import AnyData, AnyModel, NotNegative, Settings, Sha256
from training.traced_steps import Trace

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


class SpecError(ValueError):
    """A specification that can't be used; its text is one sentence for the person who wrote it."""


def known_workload(name: str, info: ValidationInfo) -> str:
    """Validates the name of a workload, after its `workload_digest`: there is such a one."""
    settings_of(name, info.data.get("workload_digest"))
    return name


def as_the_workload_says(content: Any, _: Any, info: ValidationInfo) -> Settings:
    """Validates `data` or `model`, after the `workload` whose settings they are."""
    found = info.data
    if "workload" not in found:  # which is a fault already
        return UnknownData.model_construct() if info.field_name == "data" else UnknownModel()
    data, model = settings_of(found["workload"], found["workload_digest"])
    return (data if info.field_name == "data" else model).model_validate(content)


class DataSpec(Settings):
    """Which data, for which workload: everything that `prepare` needs."""

    LATER: ClassVar[dict[str, Any]] = {"workload": DEFAULT, "workload_digest": None}

    workload_digest: Sha256 | None = None  # of the content of a user's own workload; None = it is built in
    workload: Annotated[str, StringConstraints(pattern=f"^{NAME}$", max_length=60)] = DEFAULT
    data: AnyData  # the workload's own

    _there_is_one = field_validator("workload")(known_workload)
    _valid = field_validator("data", "model", mode="wrap", check_fields=False)(as_the_workload_says)


GradientSync = Annotated[
    Literal["auto", "dense", "rows", "bf16", "fp16", "powersgd"],
    BeforeValidator(
        lambda word: "dense" if word == "allreduce" else word,
        json_schema_input_type=Literal["auto", "dense", "rows", "bf16", "fp16", "powersgd", "allreduce"],
    ),
]
"""How ranks exchange gradients. Older specifications have `allreduce`, which is `dense`."""


class Work(DataSpec):
    """All that decides the weights: the same work gives the same weights, to the last bit, on every stack.

    (Given equal threads and processors of the same kind: the order of summation depends on both.)
    """

    LATER: ClassVar[dict[str, Any]] = DataSpec.LATER | {
        "optimiser": "adamw",
        "optimiser_implementation": "fused",
        "momentum": 0.9,
        "schedule": "linear",
        "clip_gradients": 0.0,
        "dropout_draws": "torch",
        "simulated_step_ms": None,
    }
    FORMER: ClassVar[dict[str, dict[str, Any]]] = {"gradient_sync": {"dense": "allreduce"}}

    data_digest: Sha256  # of the prepared data set, as `prepare` printed it
    model: AnyModel = Field(default_factory=dict, validate_default=True)
    workers: int = Field(ge=1, le=4096)
    slots_per_worker: int = Field(default=1, ge=1, le=64)
    epochs: int = Field(ge=1, le=100_000)
    seed: NotNegative
    batch_per_worker: int = Field(default=32, ge=1, le=65536)  # samples a rank takes in one step
    gradient_accumulation: int = Field(default=1, ge=1, le=65536)  # parts in which a rank computes its batch
    activation_checkpointing: bool = False  # recompute activations in the backward pass: less memory
    optimiser: Literal["adamw", "sgd"] = "adamw"
    # PyTorch's: one pass over all weights, a few operations on all at once, or a loop over parameters.
    optimiser_implementation: Literal["fused", "foreach", "for_loop"] = "fused"
    momentum: float = Field(default=0.9, ge=0, lt=1)  # of sgd
    learning_rate: float = Field(default=5e-5, gt=0, le=10)
    schedule: Literal["linear", "cosine", "constant", "step"] = "linear"  # after the warm-up
    warmup_steps: NotNegative = 500
    clip_gradients: float = Field(default=0.0, ge=0)  # the largest norm of a step's gradients; 0 = any
    weight_decay: float = Field(default=0.01, ge=0, le=1)
    # Of samples of different lengths, in what is computed: to the longest that the data allow, to the longest
    # of the batch, or not at all.
    padding: Literal["max_length", "longest", "none"] = "max_length"
    # Which samples share a batch. length: those of similar length.
    grouping: Literal["none", "length"] = "none"
    # What dropout asks torch's generator for. 16_bit: as many bits for each number, and no more.
    dropout_draws: Literal["torch", "16_bit"] = "torch"
    last_batch: Literal["keep", "drop"] = "keep"
    # What the model computes in. bf16: by torch.autocast; weights, gradients and their exchange are fp32.
    precision: Literal["fp32", "bf16"] = "fp32"
    gradient_sync: GradientSync = "dense"  # dense: all gradients in fp32, as DistributedDataParallel does
    evaluate_every_epochs: int = Field(default=1, ge=1)  # the last epoch is always evaluated
    checkpoint_every_epochs: int = Field(default=0, ge=0)  # 0 = never
    checkpoint_every_steps: int = Field(default=0, ge=0)  # in addition; 0 = never
    keep_checkpoints: int = Field(default=2, ge=1)  # the newest ones
    deterministic: bool = True  # now a condition; kept for the digests of works
    # Not None: nothing is trained; a simulated accelerator takes this time for a rank's full batch.
    simulated_step_ms: float | None = Field(default=None, gt=0, le=100_000)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.workers * self.slots_per_worker

    @property
    def global_batch(self) -> int:
        """Samples that all ranks together take in one full step."""
        return self.batch_per_worker * self.world_size

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in one epoch, including the uneven last one if it is kept."""
        whole, rest = divmod(self.data.train, self.global_batch)
        return whole + (1 if rest and self.last_batch == "keep" else 0)

    @property
    def steps(self) -> int:
        """Optimiser steps in the whole training."""
        return self.steps_per_epoch * self.epochs

    @property
    def smallest_part(self) -> int:
        """The fewest samples that a rank computes at once while it trains."""
        sizes = [self.batch_per_worker]
        if self.last_batch == "keep" and (rest := self.data.train % self.global_batch):
            sizes += [max(1, rest // self.world_size), -(-rest // self.world_size)]
        parts = [-(-size // self.gradient_accumulation) for size in sizes]
        return min(size % part or part for size, part in zip(sizes, parts, strict=True))

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether an interrupted run can be resumed."""
        return bool(self.checkpoint_every_epochs or self.checkpoint_every_steps)

    @model_validator(mode="after")
    def _belongs_together(self) -> Work:
        self.model.check(self.data)
        if self.data.has_own_loop:
            refuse_changed(self, WORK_OF_THE_LOOP, self.data.name)
        if self.padding not in (possible := self.model.paddings(self.data)):
            raise ValueError(
                f"padding: {self.padding} is nothing that this model of {self.workload} heeds; use "
                f"{' or '.join(possible)}"
            )
        if self.grouping == "length" and not self.data.has_lengths:
            raise ValueError(
                f"grouping: length needs samples that differ in length, and these data of {self.workload} "
                "have none; leave it out"
            )
        if self.precision not in (possible := self.model.precisions(self.data)):
            raise ValueError(
                f"precision: {self.precision} is nothing that this model of {self.workload} computes well in "
                f"with these data; use {' or '.join(possible)}"
            )
        if self.simulated_step_ms is not None and self._of_a_model:
            raise ValueError(
                f"{self._of_a_model[0]} is of a model, and a simulated accelerator (simulated_step_ms) "
                "computes none; leave it out"
            )
        if self.gradient_accumulation > self.batch_per_worker:
            raise ValueError(
                f"a batch of {self.batch_per_worker} samples can't be computed in "
                f"{self.gradient_accumulation} parts; use fewer parts (gradient_accumulation)"
            )
        if self.gradient_sync == "powersgd" and self.keeps_checkpoints:
            raise ValueError(
                "with gradient_sync: powersgd each rank keeps what it has not sent yet, which no checkpoint "
                "has; leave out checkpoint_every_epochs and checkpoint_every_steps, or use another way"
            )
        if self.global_batch > self.data.train:
            raise ValueError(
                f"a batch of {self.global_batch} ({self.world_size} ranks of {self.batch_per_worker}) is "
                f"larger than the {self.data.train} samples to train with; "
                "use more samples, or smaller batches"
            )
        if self.smallest_part < (least := self.model.smallest_batch(self.data)):
            raise ValueError(
                f"a rank would compute {self.smallest_part} of its samples alone, but this model needs "
                f"{least} at once to normalise over; use last_batch: drop, larger batches, or fewer parts "
                "(gradient_accumulation)"
            )
        return self

    @property
    def _of_a_model(self) -> list[str]:
        """The settings that only a model that is computed can have."""
        settings = {
            f"precision: {self.precision}": self.precision != "fp32",
            "gradient_sync: rows": self.gradient_sync == "rows",
            "dropout_draws: 16_bit": self.dropout_draws == "16_bit",
            "activation_checkpointing": self.activation_checkpointing,
        }
        return [text for text, is_set in settings.items() if is_set]


WORK_OF_THE_LOOP: Final = (
    "activation_checkpointing",
    "optimiser",
    "optimiser_implementation",
    "momentum",
    "schedule",
    "clip_gradients",
    "padding",
    "grouping",
    "dropout_draws",
    "last_batch",
    "precision",
    "gradient_sync",
    "evaluate_every_epochs",
    "checkpoint_every_epochs",
    "checkpoint_every_steps",
    "simulated_step_ms",
)
"""What only this package's loop does as a work says."""

CONDITIONS_OF_THE_LOOP: Final = (
    "tokenizing",
    "fast_tokenizer",
    "tokenizer_threads",
    "allocator",
    "reporting",
    "printed_lines",
    "evaluation",
    "evaluation_batch",
    "scoring",
    "loader_workers",
    "loader_start",
    "save",
    "metrics",
    "predictions",
    "trace",
    "deterministic",
    "compile",
)
"""Conditions that only this package's loop heeds."""


OF_A_MODEL: Final = ("save", "metrics", "predictions", "scoring", "bits", "compile")
"""Conditions that mean nothing where no model is trained."""

OF_TRAINING: Final = (*CONDITIONS_OF_THE_LOOP, "bits", "data_place", "script_output")
"""Conditions that mean nothing where an empty program is started in the place of training."""


class Conditions(Settings):
    """What affects how long a work takes, and must be the same on every stack for times to be comparable."""

    LATER: ClassVar[dict[str, Any]] = {
        "bits": "machine",
        "tokenizing": "before",
        "fast_tokenizer": True,
        "tokenizer_threads": "one",
        "allocator": "tuned",
        "reporting": "epoch",
        "printed_lines": 0,
        "repetition": 1,
        "evaluation": "sharded",
        "evaluation_batch": None,
        "scoring": "direct",
        "runtime": "stack",
        "launcher": "stack",
        "startup_hook": "none",
        "python_workers": "fresh",
        "libraries": "locked",
        "program": "training",
        "rank_environment": {},
        "slow_worker": None,
        "rank_0": "any",
        "loader_workers": None,
        "loader_start": "fork",
        "data_place": "local",
        "script_output": "unbuffered",
        "save": "none",
        "deterministic": True,
        "metrics": [],
        "predictions": False,
        "trace": None,
    }

    # Compute threads of each rank. stack: as many as come of what the stack sets and torch takes by itself.
    threads: Annotated[int, Field(ge=1, le=1024)] | Literal["stack"] = 1
    pinning: str = Field(default="none", min_length=1, max_length=200)  # the inventory's own words
    link_rate: str | None = Field(default=None, max_length=50)  # e.g. "1gbit"; None = not limited
    device: Literal["cpu", "cuda"] = "cpu"
    # The model by torch.compile, in this of its modes; False: operator by operator.
    compile: Literal[False, "default", "reduce-overhead"] = False
    deterministic: bool = True  # False: torch may take faster algorithms whose last bits differ by chance
    bits: Bits = "machine"  # portable: kernels that end with the same bits on processors of every vendor
    # in_loop: for each batch; in_run: once, by the stack itself, before its ranks start. All give equal ids.
    tokenizing: Literal["before", "in_loop", "in_run"] = "before"
    # False: transformers' tokenizer in Python, where texts become ids in the loop.
    fast_tokenizer: bool = True
    # Of the fast one in the loop; all: as many as the process has cores; stack: as it finds its environment.
    tokenizer_threads: Literal["one", "all", "stack"] = "one"
    # Of the C library: tuned keeps freed memory for the next step, stock is as people find it.
    allocator: Literal["tuned", "stock"] = "tuned"
    # What the session is told: steps about once a second and the rest once an epoch, or each step at once.
    reporting: Literal["epoch", "step"] = "epoch"
    printed_lines: int = Field(default=0, ge=0, le=10_000)  # that every rank prints in every step
    # Of validation. sharded: each rank evaluates its share; replicated: each evaluates everything, as scripts
    # often do; none: it is left out.
    evaluation: Literal["sharded", "replicated", "none"] = "sharded"
    # Samples that a rank evaluates at once; None = as many as it computes at once while it trains.
    evaluation_batch: int | None = Field(default=None, ge=1, le=65536)
    # Who counts the samples that are right. direct: the loop's own sums; evaluate: Hugging Face's library of
    # that name, as in people's scripts. Both give equal figures.
    scoring: Literal["direct", "evaluate"] = "direct"
    runtime: Literal["stack", "native"] = "stack"  # the stack's own way, or processes on the host
    launcher: Literal["stack", "none"] = "stack"  # the stack's own, or ranks started directly
    # install: a script of the stack's installs libraries anew in each container, before the ranks start.
    startup_hook: Literal["none", "install"] = "none"
    # Of a stack whose tasks run in Python processes: a new one for each task, or one that stays for the next.
    python_workers: Literal["fresh", "reused"] = "fresh"
    # newest: from an environment beside the locked one, whose lock has the newest of the day it was resolved.
    libraries: Literal["locked", "newest"] = "locked"
    # empty: the stack starts a function that does nothing, without anything of this package: its bare start.
    program: Literal["training", "empty"] = "training"
    # Processes of torch's DataLoader that make each rank's batches; 0 = a DataLoader without any, None = no
    # DataLoader. All give equal batches.
    loader_workers: int | None = Field(default=None, ge=0, le=64)
    # How these start: as copies of the rank, or anew, importing all they need. Both give equal batches.
    loader_start: Literal["fork", "spawn"] = "fork"
    # Where ranks read the prepared data set: on their node's own disk, or on the nodes' shared storage.
    data_place: Literal["local", "shared"] = "local"
    # Of a script: each line reaches the log at once, or when the stack's launch has it do so.
    script_output: Literal["unbuffered", "stack"] = "unbuffered"
    # The inventory's last worker gets this share of the processor time that a run's threads can use there.
    slow_worker: float | None = Field(default=None, gt=0, lt=1)
    # master: beside the stacks' services; worker: the master takes no part; any: where the plan puts it.
    rank_0: Literal["any", "worker", "master"] = "any"
    # The trained model in the run's folder: the last epoch's, or the best evaluated one's.
    save: Literal["none", "last", "best"] = "none"
    # Further metrics, which need all predictions of a split together; which ones, the workload says.
    metrics: list[str] = Field(default_factory=list)
    # Predictions as Parquet in the run's folder: of validation after the last epoch, and of test.
    predictions: bool = False
    # Steps that torch's profiler records on every rank, which takes time: the run counts as disturbed.
    trace: Trace | None = None
    rank_environment: RankEnvironment = Field(default_factory=dict)  # further variables of every rank
    repetition: int = Field(default=1, ge=1, le=1000)  # which of several runs that are the same in all else

    @model_validator(mode="after")
    def _belongs_together(self) -> Conditions:
        if self.threads == "stack":
            needing = [f"slow_worker: {self.slow_worker}"] if self.slow_worker is not None else []
            needing += ["tokenizing: in_run"] if self.tokenizing == "in_run" else []
            if needing:
                raise ValueError(
                    f"{' and '.join(needing)} must know the number of threads, which threads: stack leaves "
                    "open; give a number, or leave out the other"
                )
        if self.program == "empty":
            plain = Conditions()
            if asked := [name for name in OF_TRAINING if getattr(self, name) != getattr(plain, name)]:
                raise ValueError(
                    f"program: empty trains nothing, so it has nothing for {' and '.join(asked)}; leave out "
                    "one or the other"
                )
        if self.bits == "portable" and self.device != "cpu":
            raise ValueError("bits: portable is of processors, and the device is cuda; leave it out")
        if self.bits == "portable" and (named := PORTABLE.keys() & self.rank_environment.keys()):
            raise ValueError(
                f"bits: portable sets {', '.join(sorted(named))} itself; leave it out of rank_environment"
            )
        if self.compile == "reduce-overhead" and self.device != "cuda":
            raise ValueError(
                f"compile: reduce-overhead is of CUDA graphs, and the device is {self.device}; use compile: "
                "default, or leave it out"
            )
        if self.compile and self.bits == "portable":
            raise ValueError(
                f"bits: portable is of torch's own kernels, and compile: {self.compile} makes others for "
                "each processor; leave out one or the other"
            )
        for name, usual in (("fast_tokenizer", True), ("tokenizer_threads", "one")):
            if getattr(self, name) != usual and self.tokenizing != "in_loop":
                raise ValueError(
                    f"{name} is of tokenizing: in_loop, and this is tokenizing: {self.tokenizing}; set that, "
                    "or leave it out"
                )
        if self.tokenizer_threads != "one" and not self.fast_tokenizer:
            raise ValueError(
                f"tokenizer_threads: {self.tokenizer_threads} is of the fast tokenizer; the slow one has no "
                "threads"
            )
        if self.evaluation == "none":
            asked = [name for name in ("metrics", "predictions") if getattr(self, name)]
            asked += ["save: best"] if self.save == "best" else []
            asked += ["scoring: evaluate"] if self.scoring == "evaluate" else []
            if asked:
                raise ValueError(
                    f"evaluation: none has nothing for {' and '.join(asked)}; leave out one or the other"
                )
        if self.loader_start != "fork" and not self.loader_workers:
            raise ValueError(
                f"loader_start: {self.loader_start} is of the processes of a DataLoader, and there are none; "
                "set loader_workers to 1 or more, or leave it out"
            )
        return self


class RunSpec(Settings):
    """One run: a stack does a work under conditions."""

    stack: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*$", max_length=32)]
    work: Work
    conditions: Conditions = Conditions()

    @model_validator(mode="after")
    def _belongs_together(self) -> RunSpec:
        if self.conditions.tokenizing != "before" and not self.work.data.tokenizes_later:
            raise ValueError(
                f"conditions.tokenizing: {self.conditions.tokenizing} makes tokens of single texts that have "
                f"a class, and these data of {self.work.workload} are not such; leave it out"
            )
        known = self.work.data.further_metrics
        if known is not None and (unknown := [name for name in self.conditions.metrics if name not in known]):
            there = f"there are {', '.join(known)}" if known else f"{self.work.workload} has none"
            raise ValueError(f"conditions.metrics: there is no {unknown[0]} for these data; {there}")
        if self.work.data.has_own_loop:
            refuse_changed(self.conditions, CONDITIONS_OF_THE_LOOP, self.work.data.name)
            if self.conditions.threads == "stack":
                raise ValueError(
                    f"conditions.threads: stack is of a loop that says how many it got, and "
                    f"{self.work.data.name} has a loop of its own; give a number"
                )
            if self.bare:
                raise ValueError(
                    "conditions.program: empty stands beside training whose first and last step are known, "
                    f"and {self.work.data.name} has a loop of its own; leave it out"
                )
        elif self.conditions.script_output != "unbuffered":
            raise ValueError(
                f"conditions.script_output: {self.conditions.script_output} is of scripts, and "
                f"{self.work.workload} is none; leave it out"
            )
        if self.work.simulated_step_ms is not None:
            usual = Conditions()
            for name in OF_A_MODEL:
                if getattr(self.conditions, name) != getattr(usual, name):
                    raise ValueError(
                        f"conditions.{name} is of a model, and a simulated accelerator (simulated_step_ms) "
                        "trains none; leave it out"
                    )
        if self.conditions.bits == "portable" and self.work.precision != "fp32":
            raise ValueError(
                f"conditions.bits: portable is of fp32, and this is precision: {self.work.precision}; leave "
                "out one or the other"
            )
        if self.conditions.bits == "portable" and self.work.optimiser_implementation != "fused":
            raise ValueError(
                "conditions.bits: portable needs the optimiser in one pass, as the others take roots that "
                "each kind of processor computes in its own way; leave out optimiser_implementation"
            )
        if self.conditions.compile and self.work.padding == "none":
            raise ValueError(
                f"conditions.compile: {self.conditions.compile} makes a program for each shape of a batch, "
                "and with padding: none nearly every batch has a shape of its own; use padding: longest or "
                "max_length, or leave out compile"
            )
        if self.conditions.compile == "reduce-overhead" and self.work.gradient_accumulation > 1:
            raise ValueError(
                "conditions.compile: reduce-overhead has gradients in memory that the next forward pass "
                f"overwrites, and gradient_accumulation: {self.work.gradient_accumulation} adds to them; use "
                "compile: default, or leave out gradient_accumulation"
            )
        if self.conditions.compile and self.work.padding != "max_length" and self.work.keeps_checkpoints:
            raise ValueError(
                f"conditions.compile: {self.conditions.compile} decides by the first batch, and a resumed "
                f"run begins with another one, which with padding: {self.work.padding} has another shape; "
                "use padding: max_length, or leave out checkpoint_every_epochs and checkpoint_every_steps"
            )
        if self.conditions.scoring == "evaluate" and not self.work.data.has_classes:
            raise ValueError(
                "conditions.scoring: evaluate counts samples whose predicted class is the true one, and "
                f"those of these data of {self.work.workload} don't have one class each; leave it out"
            )
        trace, steps = self.conditions.trace, self.work.steps
        if trace is not None and trace.last > steps:
            raise ValueError(
                f"conditions.trace: the training ends with step {steps}, so there is no step {trace.last} to "
                "trace; take earlier steps"
            )
        return self

    @property
    def bare(self) -> bool:
        """Whether it starts an empty program in the place of training."""
        return self.conditions.program == "empty"

    @property
    def run_id(self) -> str:
        """Readable and unique: stack, workers, epochs, seed, eight digits of the specification's digest.

        It says if the run is simulated, or trains nothing.
        """
        work = self.work
        kind = "empty-" if self.bare else "" if work.simulated_step_ms is None else "simulated-"
        return f"{self.stack}-{kind}w{work.workers}-e{work.epochs}-s{work.seed}-{self.digest[:8]}"


def refuse_changed(settings: Work | Conditions, names: Sequence[str], program: str) -> None:
    """Refuse settings that a program with a loop of its own does not heed.

    Raises:
        ValueError: one of them is not as it is by default.
    """
    for name in names:
        usual = type(settings).model_fields[name].get_default(call_default_factory=True)
        if getattr(settings, name) != usual:
            raise ValueError(
                f"{program} has a loop of its own, which does not heed {name}; leave that out, and give the "
                "program what it takes as arguments"
            )


Spec = TypeVar("Spec", bound=Settings)


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
        text = fault["msg"].removeprefix("Value error, ").removesuffix(".")
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


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return isinstance(text, str)
