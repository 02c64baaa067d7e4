"""The same training with Hugging Face's Trainer; as a command, the engine against it on a GPU.

python -m tests.benchmarks.trainer --data DIR (a prepared data set) [--steps N] [--rounds N]

Prints the samples per second of both for each round, and the ratio with its 95 % interval. Both train one
epoch in fp32, without evaluation, logging or checkpoints. The first round is a warm-up and does not count.
(`python -m tests.benchmarks` compares them on a core.)
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from experiments.analysis.statistics import paired_ratio
from experiments.report.formats import RATIO, Value
from tests.benchmarks.engine import Alone, by_the_engine, opened, work_on
from training.data.batches import global_batches
from training.workload import Batch, Workload

ORDER: Final = "train_sampling_strategy"
BY_LENGTH: Final = {ORDER: "group_by_length"}
"""Trainer's own grouping; with it, rows are padded to the longest of their batch."""


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
    """Takes the time of each step, from the end of the one before."""

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


def seconds_of(workload: Workload, device: torch.device, *, engine: bool) -> float:
    """The seconds of a whole training, until the device has done all of it."""
    settle(device)
    begun = time.perf_counter()
    if engine:
        by_the_engine(workload, Alone(device=device))
    else:
        by_trainer(workload, device, {})
    settle(device)
    return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of a prepared data set")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    device = torch.device("cuda", 0)
    work = work_on(given.data, given.steps, batch_per_worker=given.batch)
    workload = opened(work, given.data)
    pairs = []
    for number in range(given.rounds + 1):
        engine, trainer = (seconds_of(workload, device, engine=ours) for ours in (True, False))
        rates = [work.data.train / seconds for seconds in (engine, trainer)]
        what = f"round {number}" if number else "warming up"
        print(f"{what}: engine {rates[0]:.0f} samples/s, Trainer {rates[1]:.0f} samples/s", flush=True)
        if number:
            pairs.append((trainer, engine))
    found = paired_ratio(pairs)
    assert found is not None
    text = Value(found.ratio, RATIO, low=found.low, high=found.high).text
    print(f"The engine is {text} times as fast as Trainer ({found.n} pairs).")


if __name__ == "__main__":
    main()
