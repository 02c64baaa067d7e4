"""The same training with Hugging Face's Trainer; as a command, the engine against it on a GPU.

python -m tests.benchmarks.trainer --data DIR (a prepared data set) [--batches N …] [--steps N] [--rounds N]

For each batch size and each way to train, prints the samples per second of both in each round, and the ratio
with its 95 % interval. Both train one epoch, without evaluation, logging or checkpoints, and are timed from
its first step until the GPU has done all; who is first takes turns. What compiling takes is not counted, nor
is the first round, a warm-up. The engine's algorithms are deterministic, as in runs; Trainer's are not, as by
its default.
(`python -m tests.benchmarks` compares them on a core.)
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from experiments.analysis.statistics import paired_ratio
from experiments.report.formats import RATIO, Value
from tests.benchmarks.engine import Alone, by_the_engine, described, opened, work_on
from training.data.batches import global_batches
from training.job import be_deterministic
from training.spec import Conditions
from training.workload import Batch, Workload

ORDER: Final = "train_sampling_strategy"
BY_LENGTH: Final = {ORDER: "group_by_length"}
"""Trainer's own grouping; with it, rows are padded to the longest of their batch."""


@dataclass(frozen=True)
class Way:
    """A way to train on a GPU, and how Trainer is set beside it."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the work
    compile: Literal[False, "default", "reduce-overhead"] = False
    peer: Mapping[str, Any] = field(default_factory=dict)


FIRST: Final = {"model": {"last_layer": "first_token"}}
BF16: Final = {"precision": "bf16"}
WAYS: Final = (
    Way("plain"),
    Way("compile: default", compile="default"),
    Way("compile: reduce-overhead", compile="reduce-overhead"),
    Way("padding: none and last_layer: first_token", {"padding": "none"} | FIRST),
    Way("plain, bf16", BF16, peer={"bf16": True}),
    Way(
        "last_layer: first_token, bf16, compile: reduce-overhead",
        BF16 | FIRST,
        "reduce-overhead",
        {"bf16": True},
    ),
    Way(
        "padding: none and last_layer: first_token, bf16",
        BF16 | {"padding": "none"} | FIRST,
        peer={"bf16": True},
    ),
)


class Rows(torch.utils.data.Dataset[Batch]):
    """All samples of all epochs, in the order in which the engine takes them."""

    def __init__(self, workload: Workload, *, trimmed: bool) -> None:
        """Made before the first step.

        Args:
            workload: whose they are.
            trimmed: leave their padding out.
        """
        work = workload.work
        epochs = [
            workload.batch("train", torch.cat(list(batches)), epoch)
            for epoch in range(1, work.epochs + 1)
            for batches in [
                global_batches(
                    work.data.train, work.global_batch, keep_last=True, seed=work.seed, epoch=epoch
                )
            ]
        ]
        self._columns = {name: torch.cat([each[name] for each in epochs]) for name in epochs[0]}
        self._lengths = self._columns["attention_mask"].sum(dim=1).tolist() if trimmed else None

    def __len__(self) -> int:
        return len(self._columns["labels"])

    def __getitem__(self, index: int) -> Batch:
        row = {name: column[index] for name, column in self._columns.items()}
        if self._lengths is None:
            return row
        return {name: each[: self._lengths[index]] if each.dim() else each for name, each in row.items()}


def padded(rows: Sequence[Batch]) -> Batch:
    """A batch of rows, padded with zeros to the longest, as DataCollatorWithPadding does."""
    batch = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        name: pad_sequence(column, batch_first=True) if column[0].dim() else torch.stack(column)
        for name, column in batch.items()
    }


class Stopwatch(TrainerCallback):
    """Takes the time of each step, from the end of the one before; the last ends with the device's work."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: list[float] = []

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """The first step begins."""
        settle(self._device)
        self._ended = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A step is over, and the next one begins."""
        now = time.perf_counter()
        self.seconds.append(now - self._ended)
        self._ended = now

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """All steps have been given to the device."""
        settle(self._device)
        self.seconds[-1] += time.perf_counter() - self._ended


def by_trainer(
    workload: Workload, device: torch.device, settings: Mapping[str, Any]
) -> tuple[list[float], torch.nn.Module]:
    """The seconds of each step with Trainer, and the model that it trained.

    Args:
        workload: what to train: the same model, batches, learning rates and clipping as the engine's.
        device: where.
        settings: of Trainer, beside its defaults.
    """
    work = workload.work
    grouped = settings.get(ORDER) == BY_LENGTH[ORDER]
    stopwatch = Stopwatch(device)
    with tempfile.TemporaryDirectory() as folder:
        arguments: dict[str, Any] = {
            "output_dir": folder,
            "num_train_epochs": 1,
            "per_device_train_batch_size": work.batch_per_worker,
            "learning_rate": work.learning_rate,
            "weight_decay": work.weight_decay,
            "warmup_steps": work.warmup_steps,
            "max_grad_norm": work.clip_gradients,
            "use_cpu": device.type == "cpu",
            "logging_strategy": "no",
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "seed": work.seed,
            ORDER: "sequential",
        }
        model = workload.model().to(device)
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**(arguments | dict(settings))),
            train_dataset=Rows(workload, trimmed=grouped),
            data_collator=padded if grouped else None,
            callbacks=[stopwatch],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return stopwatch.seconds, model


def settle(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def deterministic() -> Iterator[None]:
    """Meanwhile, algorithms are deterministic, as in a run."""
    be_deterministic()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def seconds_of_the_engine(workload: Workload, device: torch.device) -> float:
    """From before the first step until the device has done all, without what compiling took."""
    session, begun = Alone(device=device), 0.0

    def begin() -> None:
        nonlocal begun
        settle(device)
        begun = time.perf_counter()

    with deterministic():
        by_the_engine(workload, session, begin)
        settle(device)
    return time.perf_counter() - begun - session.compiling_s


def compared(way: Way, data: Path, steps: int, batch: int, rounds: int) -> Iterator[str]:
    """A line for each round of one way to train, and one for their ratio."""
    device = torch.device("cuda", 0)
    plain = opened(work_on(data, steps, batch_per_worker=batch), data)
    work = work_on(data, steps, batch_per_worker=batch, **way.settings)
    workload = opened(work, data, Conditions(device="cuda", compile=way.compile))
    pairs = []
    calls: dict[str, Callable[[], float]] = {
        "engine": lambda: seconds_of_the_engine(workload, device),
        "Trainer": lambda: sum(by_trainer(plain, device, way.peer)[0]),
    }
    for number in range(rounds + 1):
        found = {who: calls[who]() for who in (calls if number % 2 else reversed(calls))}
        engine, trainer = found["engine"], found["Trainer"]
        rates = [work.data.train / seconds for seconds in (engine, trainer)]
        what = f"round {number}" if number else "warming up"
        yield f"  {what}: engine {rates[0]:.0f} samples/s, Trainer {rates[1]:.0f} samples/s"
        if number:
            pairs.append((trainer, engine))
    ratio = paired_ratio(pairs)
    assert ratio is not None
    text = Value(ratio.ratio, RATIO, low=ratio.low, high=ratio.high).text
    yield f"  The engine is {text} times as fast as Trainer ({ratio.n} pairs)."


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of a prepared data set")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for batch, way in itertools.product(given.batches, WAYS):
        steps = min(given.steps, described(given.data)["spec"]["train"] // batch)
        print(f"{way.name}, {steps} steps of {batch} samples", flush=True)
        for line in compared(way, given.data, steps, batch, given.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
