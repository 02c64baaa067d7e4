"""On which side of a circle a point is: the smallest workload with dropout and running means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from training.data.prepared import Dataset, read_arrow
from training.metrics.of_predictions import of_classes
from training.spec import Conditions, Work
from training.workload import Batch, Workload

from .settings import Model


class Points(Workload):
    """Points inside and outside of a circle."""

    SUMS = ("loss", "correct")

    def __init__(self, work: Work, dataset: Dataset, conditions: Conditions, run: Path) -> None:
        super().__init__(work, dataset, conditions, run)
        assert isinstance(work.model, Model)
        self._model = work.model
        self._splits = {name: read_arrow(dataset.path / f"{name}.arrow") for name in work.data.splits}

    def build_model(self) -> torch.nn.Module:
        wide = self._model.hidden
        return torch.nn.Sequential(
            torch.nn.Linear(2, wide),
            torch.nn.BatchNorm1d(wide),
            torch.nn.ReLU(),
            torch.nn.Dropout(self._model.dropout),
            torch.nn.Linear(wide, 2),
        )

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:  # noqa: ARG002  # each alike
        columns = {name: np.from_dlpack(self._splits[split].column(name)) for name in ("x", "y", "inside")}
        rows = chosen.numpy()
        points = np.stack([columns["x"][rows], columns["y"][rows]], axis=1)
        return {"points": torch.from_numpy(points), "inside": torch.from_numpy(columns["inside"][rows])}

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(model(batch["points"]), batch["inside"])

    def predict(self, model: torch.nn.Module, batch: Batch) -> Batch:
        return {"answers": model(batch["points"]), "inside": batch["inside"]}

    def score(self, predictions: Batch) -> torch.Tensor:
        answers, inside = predictions["answers"], predictions["inside"]
        loss = functional.cross_entropy(answers, inside, reduction="sum")
        return torch.stack([loss, (answers.argmax(dim=1) == inside).sum()])

    def classes(self, predictions: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return predictions["answers"].argmax(dim=1), predictions["inside"]

    def further_metrics(
        self, predictions: Mapping[str, np.ndarray[Any, Any]], names: Sequence[str]
    ) -> dict[str, float]:
        return of_classes(predictions["answers"], predictions["inside"], names)

    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        accuracy = {"accuracy": sums["correct"] / samples, "correct": int(sums["correct"])}
        return {"loss": sums["loss"] / samples} | accuracy
