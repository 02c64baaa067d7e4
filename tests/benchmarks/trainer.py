"""The engine against Hugging Face's Trainer: the same model, data, batch and optimiser, alternately.

python -m tests.benchmarks.trainer --data DIR (a prepared data set) [--device cuda] [--rounds N]

Prints the reviews per second of both for each round, and the median of the ratios. Both train one epoch in
fp32, without evaluation, logging or checkpoints. The first round is a warm-up and does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.recording import Alone
from training.loop import train_epoch
from training.metrics.phases import Phases, clock_for
from training.session import RankStatus
from training.spec import Conditions, Work
from training.state import set_up
from training.workload import Workload, open_workload


def work_on(data: Path, batch: int) -> Work:
    """One epoch of BERT-tiny on a prepared data set."""
    description = json.loads((data / "dataset.json").read_text(encoding="utf-8"))
    return Work.model_validate(
        {
            "data": description["spec"],
            "data_digest": description["digest"],
            "epochs": 1,
            "seed": 1,
            "workers": 1,
            "batch_per_worker": batch,
        }
    )


def by_the_engine(workload: Workload, device: torch.device) -> float:
    """Seconds of an epoch's steps."""
    session = Alone(None, device)
    phases = Phases(clock_for(device.type), 10**9)  # without the cost of measuring phases
    phases.begin("other")
    training = set_up(workload, session, phases)
    settle(device)
    begun = time.perf_counter()
    train_epoch(training, 1, RankStatus(), begun)
    settle(device)
    return time.perf_counter() - begun


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """The training split, as Trainer expects it."""

    def __init__(self, workload: Workload) -> None:
        self._columns = workload.batch("train", torch.arange(workload.work.data.train), 1)

    def __len__(self) -> int:
        return len(self._columns["labels"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: column[index] for name, column in self._columns.items()}


def by_trainer(workload: Workload, device: torch.device) -> float:
    """Seconds of an epoch with Trainer."""
    work = workload.work
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=work.batch_per_worker,
            learning_rate=work.learning_rate,
            weight_decay=work.weight_decay,
            warmup_steps=work.warmup_steps,
            use_cpu=device.type == "cpu",
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=work.seed,
        )
        trainer = Trainer(model=workload.model().to(device), args=settings, train_dataset=Rows(workload))
        settle(device)
        begun = time.perf_counter()
        trainer.train()
        settle(device)
        return time.perf_counter() - begun


def settle(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of a prepared data set")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    device = torch.device(arguments.device, 0) if arguments.device == "cuda" else torch.device("cpu")
    work = work_on(arguments.data, arguments.batch)
    workload = open_workload(work, arguments.data, Conditions(), arguments.data)
    ratios = []
    for number in range(arguments.rounds + 1):
        engine, trainer = by_the_engine(workload, device), by_trainer(workload, device)
        rates = [work.data.train / seconds for seconds in (engine, trainer)]
        what = f"round {number}" if number else "warming up"
        print(f"{what}: engine {rates[0]:.0f} reviews/s, Trainer {rates[1]:.0f} reviews/s", flush=True)
        if number:
            ratios.append(rates[0] / rates[1])
    print(f"The engine is {statistics.median(ratios):.2f} times as fast as Trainer (median).")


if __name__ == "__main__":
    main()
