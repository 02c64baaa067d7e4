"""What a text's label is, and so what the logits mean: loss, predictions and metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch.nn import functional

from training.metrics.of_predictions import of_classes, of_label_sets, of_numbers
from training.workload import Batch
from training.workloads.text_classification.settings import Data

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Problem(ABC):
    """What is predicted of each text."""

    SUMS: ClassVar[tuple[str, ...]]
    LABELS: ClassVar[torch.dtype]  # of the labels in a batch

    @abstractmethod
    def loss(self, logits: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """The loss of some samples, a scalar; logits are fp32 [samples, outputs]."""

    @abstractmethod
    def score(self, predictions: Batch) -> list[torch.Tensor]:
        """The sums of `SUMS` over some samples' predictions."""

    @abstractmethod
    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        """The metrics of a split, from its sums."""

    @abstractmethod
    def further_metrics(self, predictions: Arrays, names: Sequence[str]) -> dict[str, float]:
        """Metrics from all predictions of a split (errors: `training.metrics.of_predictions`)."""

    def predictions(self, logits: torch.Tensor, labels: torch.Tensor) -> Batch:
        """What is kept of each sample."""
        return {"logits": logits, "label": labels}


class OneClass(Problem):
    """Each text has one class: cross entropy, and the share of texts that are classified correctly."""

    SUMS = ("loss", "correct")
    LABELS = torch.int64

    def loss(self, logits: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return functional.cross_entropy(logits, labels, reduction=reduction)

    def score(self, predictions: Batch) -> list[torch.Tensor]:
        logits, labels = predictions["logits"], predictions["label"]
        return [self.loss(logits, labels, "sum"), (logits.argmax(dim=1) == labels).sum()]

    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        loss, correct = sums["loss"], sums["correct"]
        return {"loss": loss / samples, "accuracy": correct / samples, "correct": int(correct)}

    def further_metrics(self, predictions: Arrays, names: Sequence[str]) -> dict[str, float]:
        return of_classes(predictions["logits"], predictions["label"], names)


class LabelSets(OneClass):
    """Each text has any number of labels: binary cross entropy of each; correct is a text with all right."""

    LABELS = torch.float32

    def loss(self, logits: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        each = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(dim=1)
        return each.mean() if reduction == "mean" else each.sum()

    def score(self, predictions: Batch) -> list[torch.Tensor]:
        logits, labels = predictions["logits"], predictions["label"]
        right = (logits > 0) == (labels > 0)
        return [self.loss(logits, labels, "sum"), right.all(dim=1).sum()]

    def further_metrics(self, predictions: Arrays, names: Sequence[str]) -> dict[str, float]:
        return of_label_sets(predictions["logits"], predictions["label"], names)


class Number(Problem):
    """Each text has a number: mean squared error, and the mean absolute one."""

    SUMS = ("loss", "absolute")
    LABELS = torch.float32

    def loss(self, logits: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return functional.mse_loss(logits[:, 0], labels, reduction=reduction)

    def score(self, predictions: Batch) -> list[torch.Tensor]:
        errors = predictions["predicted"] - predictions["label"]
        return [errors.square().sum(), errors.abs().sum()]

    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        return {"loss": sums["loss"] / samples, "mean_absolute_error": sums["absolute"] / samples}

    def predictions(self, logits: torch.Tensor, labels: torch.Tensor) -> Batch:
        return {"predicted": logits[:, 0], "label": labels}

    def further_metrics(self, predictions: Arrays, names: Sequence[str]) -> dict[str, float]:
        return of_numbers(predictions["predicted"], predictions["label"], names)


PROBLEMS: Final[dict[str, Problem]] = {
    "single_label_classification": OneClass(),
    "multi_label_classification": LabelSets(),
    "regression": Number(),
}
"""By the names that transformers gives them (`problem_type`)."""


def problem_of(data: Data) -> Problem:
    """What is predicted of these texts."""
    return PROBLEMS[data.problem_type]
