"""Trainings of BERTs outside of any run: the engine's own steps, to measure.

A case may have what a work can't: a length below the data set's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch

from tests.benchmarks.engine import Alone
from training.data.prepared import DESCRIPTION, find_dataset
from training.errors import DataError
from training.loop import micro_batches, take_step
from training.metrics.phases import Phases
from training.registry import DEFAULT
from training.spec import Conditions, Work
from training.state import Training, set_up
from training.workload import Batch
from training.workloads.text_classification.settings import Data, ScratchModel
from training.workloads.text_classification.workload import TextClassification

Shape = Literal["tiny", "mini", "base", "large"]
SHAPES: Final[dict[Shape, dict[str, int]]] = {
    "tiny": {"layers": 2, "hidden": 128, "heads": 2, "intermediate": 512},
    "mini": {"layers": 4, "hidden": 256, "heads": 4, "intermediate": 1024},
    "base": {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072},
    "large": {"layers": 24, "hidden": 1024, "heads": 16, "intermediate": 4096},
}
"""Google's BERTs, from the smallest to the largest."""


@dataclass(frozen=True)
class Case:
    """A model, and how it is trained."""

    shape: Shape = "tiny"
    length: int = 128  # tokens that samples are cut to
    batch: int = 32  # samples of a worker's step
    accumulation: int = 1  # parts in which they are computed
    checkpointing: bool = False  # activations are computed again in the backward pass
    bf16: bool = False  # precision: bf16, by autocast; the weights stay fp32
    skipping: bool = False  # padding: none and last_layer: first_token
    fast_dropout: bool = False  # dropout_draws: 16_bit, and none in attention
    clip_gradients: float = 0.0  # the largest norm; 0 = any
    workers: int = 1
    gradient_sync: Literal["dense", "rows"] = "dense"

    @property
    def settings(self) -> str:
        """What is not plain in it."""
        named = {
            f"gradient_accumulation: {self.accumulation}": self.accumulation > 1,
            "activation_checkpointing": self.checkpointing,
            "precision: bf16": self.bf16,
            "padding: none, last_layer: first_token": self.skipping,
            "dropout_draws: 16_bit, attention_dropout: 0.0": self.fast_dropout,
            f"workers: {self.workers}": self.workers > 1,
            f"gradient_sync: {self.gradient_sync}": self.gradient_sync != "dense",
        }
        return ", ".join(name for name, is_so in named.items() if is_so) or "plain"


class Bert(TextClassification):
    """The built-in workload, with what a case has that a work can't have."""

    def __init__(self, case: Case, data: Path) -> None:
        """Open the prepared data set in the folder `data`.

        Raises:
            DataError: it has other data than texts to classify, or shorter ones, or can't be used.
        """
        self._case = case
        work = work_of(case, data)
        super().__init__(work, find_dataset(data, work.data_digest), Conditions(), data)

    @property
    def shape(self) -> ScratchModel:
        """The model's settings."""
        assert isinstance(self._model, ScratchModel)
        return self._model

    @property
    def outputs(self) -> int:
        """Of the classifier."""
        return self._data.outputs

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:
        """As of all texts, but with only their first tokens."""
        whole = super().batch(split, chosen, epoch)
        return {
            name: each if name == "labels" else each[:, : self._case.length] for name, each in whole.items()
        }


def work_of(case: Case, data: Path) -> Work:
    """The work that a case is on a prepared data set.

    Raises:
        DataError: its data are no texts to classify, or shorter than the case asks for.
    """
    file = data / DESCRIPTION
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(
            f"{file} can't be read ({error.strerror}); give --data the folder of a data set."
        ) from error
    if about.get("workload", DEFAULT) != DEFAULT:
        raise DataError(f"{data} has data of {about['workload']}; give --data a data set of {DEFAULT}.")
    asked = Data.model_validate(about["spec"])
    if asked.max_length < case.length:
        raise DataError(
            f"The texts in {data} have {asked.max_length} tokens, and {case.length} are asked for; give "
            "another --length, or prepare data with a larger max_length."
        )
    model: dict[str, Any] = {"last_layer": "first_token" if case.skipping else "all_tokens"}
    if case.fast_dropout:
        model["attention_dropout"] = 0.0
    return Work(
        data=asked,
        data_digest=about["digest"],
        model=ScratchModel.model_validate(SHAPES[case.shape] | model),
        workers=case.workers,
        epochs=1,
        seed=1,
        batch_per_worker=case.batch,
        gradient_accumulation=case.accumulation,
        activation_checkpointing=case.checkpointing,
        clip_gradients=case.clip_gradients,
        gradient_sync=case.gradient_sync,
        precision="bf16" if case.bf16 else "fp32",
        dropout_draws="16_bit" if case.fast_dropout else "torch",
        padding="none" if case.skipping else "max_length",
        last_batch="drop",
    )


def begin(workload: Bert, phases: Phases, session: Alone) -> Training:
    """The training of a workload before its first step, on the session's rank and device."""
    phases.begin("other")
    training = set_up(workload, session, phases)
    training.replica.train()
    return training


def step(training: Training, chosen: torch.Tensor) -> None:
    """One of the loop's own steps, on the samples numbered `chosen`: int64 [samples]."""
    parts: Sequence[torch.Tensor] = micro_batches(training, chosen)
    take_step(training, chosen, training.feed(("train", part.tolist(), 1) for part in parts))
    training.end_step()
