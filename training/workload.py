"""The contract of a workload: what is trained, in the few functions that the training loop calls.

The loop keeps what must be equal everywhere: which samples a rank takes in a step, accumulation, precision,
gradient synchronisation, evaluation and checkpoint cadence, phases, digests, resuming. A workload says what
a sample is, and what is learnt from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.data.prepared import Dataset, find_dataset
from training.dropout import draw_16_bits
from training.errors import WorkloadError, first_line
from training.precision import return_fp32
from training.registry import load_for
from training.schedule import learning_rate_factor
from training.spec import Conditions, DataSpec, Work
from training.util.seeds import derive_seed

Batch = dict[str, torch.Tensor]
"""Samples as the model takes them, by name; the first dimension of each tensor counts the samples."""


class Workload(ABC):
    """What is trained, on one rank.

    Everything random must be derived from the work's seed (`training.util.seeds.derive_seed`) or drawn from
    torch's own generator in `loss`: the loop seeds it, saves it and restores it.
    """

    SUMS: tuple[str, ...]  # names of what `score` adds up

    def __init__(self, work: Work, dataset: Dataset, conditions: Conditions, run: Path) -> None:
        """Open the prepared data.

        Args:
            work: what to do.
            dataset: the work's, prepared by `prepare`.
            conditions: how to do it.
            run: the run's own folder.

        Raises:
            DataError: the data set can't be used.
        """
        self.work, self.dataset = work, dataset
        self.conditions, self.run = conditions, run
        dataset.check()

    @abstractmethod
    def build_model(self) -> torch.nn.Module:
        """The network in fp32 on the CPU, with its first weights; torch's generator has been seeded."""

    @abstractmethod
    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:
        """Samples of a split, on the CPU.

        Args:
            split: train, validation, or test.
            chosen: numbers of samples, int64 [samples].
            epoch: from 1; what a sample looks like may depend on it, its rank and its batch must not matter
                (but for how far it is padded, if the work says so).
        """

    def ready(self, batch: Batch) -> dict[str, Any]:
        """What `batch` gave, with whatever the model needs of its values, on the CPU.

        It is called before a batch is sent to the device, which would have to be waited for later on. What is
        no tensor stays on the CPU. `loss` and `predict` take batches that are ready and those that are not.
        """
        return batch

    def lengths(self) -> torch.Tensor:
        """How long each sample to train with is, int64 [samples]: what it costs to compute, in any unit.

        Only where `data.has_lengths`, for batches of samples of similar length.
        """
        raise NotImplementedError(f"{type(self).__name__} has no lengths, but its settings say so")

    @abstractmethod
    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """The mean loss over the batch's samples, a scalar; `batch` is on the model's device.

        What the model returns is fp32, whatever it computes in (`training.precision.in_fp32`).
        """

    @abstractmethod
    def predict(self, model: torch.nn.Module, batch: Batch) -> Batch:
        """What the model says of each sample, as tensors by name, and what is true; see `Batch`.

        `score` and `further_metrics` are made from it, and it is kept as Parquet where asked for. `batch` is
        on the model's device, and the model evaluates.
        """

    @abstractmethod
    def score(self, predictions: Batch) -> torch.Tensor:
        """Sums over the samples of a batch's predictions, in the order of `SUMS`: [sums]."""

    @abstractmethod
    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        """The metrics of a split by name: `loss`, and whatever else there is.

        Args:
            sums: what `score` gave, added up over all samples of the split, by the names in `SUMS`.
            samples: their number.
        """

    def classes(self, predictions: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The class that is predicted of each sample of a batch, and the true one: int64 [samples] each.

        `SUMS` then has `correct`, the number of samples where they are equal.
        """
        raise NotImplementedError(f"{type(self).__name__} has no classes, but its settings say so")

    def further_metrics(
        self, predictions: Mapping[str, np.ndarray[Any, Any]], names: Sequence[str]
    ) -> dict[str, float]:
        """Metrics that can't be made from sums.

        Args:
            predictions: what `predict` gave for all samples of a split, in their order.
            names: of those asked for, all in `data.further_metrics`.

        Raises:
            DataError: one is not defined for these samples.
        """
        raise NotImplementedError(f"{type(self).__name__} has no further_metrics, but its settings name some")

    def optimiser(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """The optimiser, with weight decay on all parameters.

        `fused` never calls torch.sqrt, of which `bits: portable` has no control.
        """
        work, weights = self.work, model.parameters()
        settings: dict[str, Any] = {"lr": work.learning_rate, "weight_decay": work.weight_decay}
        settings |= {each: each == work.optimiser_implementation for each in ("fused", "foreach")}
        if work.optimiser == "sgd":
            return torch.optim.SGD(weights, momentum=work.momentum, **settings)
        return torch.optim.AdamW(weights, **settings)

    def learning_rate_factor(self, step: int) -> float:
        """The factor on the learning rate in a step (from 0) of the whole training."""
        work = self.work
        return learning_rate_factor(step, work.warmup_steps, work.steps, work.schedule)

    def model_name(self) -> str:
        """The network in a few words."""
        return self.work.model.text(self.work.data)

    def data_name(self) -> str:
        """The data set in a few words."""
        data = self.work.data
        return f"{data.name}: {data.train} samples to train, {data.validation} to validate"

    def save_model(self, model: torch.nn.Module, folder: Path) -> None:
        """Write a trained model into an existing folder, in the form in which people load it.

        By default its `state_dict`, for `torch.load` with weights only.
        """
        torch.save(model.state_dict(), folder / "model.pt")

    def model(self) -> torch.nn.Module:
        """The network before the first step; the work's seed alone decides its random weights."""
        torch.manual_seed(derive_seed(self.work.seed, "model"))
        model: Any = self.build_model()
        if self.work.activation_checkpointing:
            try:
                # Models written for older releases of transformers have the second name alone.
                enable = getattr(model, "activation_checkpointing_enable", None)
                (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
            except (AttributeError, ValueError) as error:
                raise WorkloadError(
                    f"The model of {self.work.workload} can't recompute activations "
                    f"({first_line(error).rstrip('.')}); leave out activation_checkpointing."
                ) from error
        if self.work.dropout_draws == "16_bit" and not draw_16_bits(model):
            raise WorkloadError(
                f"The model of {self.work.workload} drops nothing by torch.nn.Dropout, so dropout_draws: "
                "16_bit would change nothing; leave it out."
            )
        if self.work.precision == "bf16":
            return_fp32(model)
        network: torch.nn.Module = model
        return network


def workload_class(asked: DataSpec) -> type[Workload]:
    """The class of a workload.

    Raises:
        WorkloadError: it is not here, has another content than was asked for, or breaks the contract.
    """
    name = asked.workload
    module = load_for(name, asked.workload_digest, "workload")
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Workload) and each.__module__ == module.__name__
    ]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise WorkloadError(
            f"The workload.py of {name} must have one subclass of training.workload.Workload, "
            f"but has {names}."
        )
    if missing := sorted(found[0].__abstractmethods__):
        raise WorkloadError(
            f"The class {found[0].__name__} of the workload {name} lacks {', '.join(missing)}."
        )
    return found[0]


def open_workload(work: Work, data: Path, conditions: Conditions, run: Path) -> Workload:
    """The workload of a run on this rank.

    Args:
        work: what to do.
        data: folder of the prepared data set, on this node.
        conditions: how to do it.
        run: the run's own folder.

    Raises:
        WorkloadError: see `workload_class`.
        DataError: the data set is not the one that the work asks for, or can't be used.
    """
    kind = workload_class(work)
    return kind(work, find_dataset(data, work.data_digest), conditions, run)


def to_device(batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The tensors of a batch on `device`; a GPU is not waited for, as they are sent from pinned memory."""
    gpu = device.type == "cuda"
    return {
        name: (each.pin_memory() if gpu else each).to(device, non_blocking=gpu)
        if isinstance(each, torch.Tensor)
        else each
        for name, each in batch.items()
    }
