"""A residual network learns to tell the class of an image; `Workload` says what each part must do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from training.data.prepared import Dataset, Rows, column, read_batches
from training.metrics.of_predictions import check_of_classes, of_classes
from training.spec import Conditions, Work
from training.util.seeds import derive_seed
from training.workload import Batch, Workload
from training.workloads.image_classification.images import FILTER, Pixels
from training.workloads.image_classification.network import build_network
from training.workloads.image_classification.prepare import NETWORK
from training.workloads.image_classification.settings import Data, Model

FIRST: Final = 5  # how many of the likeliest classes count for the second metric


class ImageClassification(Workload):
    """Images of two classes or more; cross entropy, accuracy, and top-5 accuracy."""

    SUMS = ("loss", "correct", "among_first")

    def __init__(self, work: Work, dataset: Dataset, conditions: Conditions, run: Path) -> None:
        super().__init__(work, dataset, conditions, run)
        assert isinstance(work.data, Data) and isinstance(work.model, Model)
        self._data, self._model = work.data, work.model
        self._classes: list[str] = dataset.description["classes"]
        check_of_classes(conditions.metrics, len(self._classes))
        files = {name: dataset.path / f"{name}.arrow" for name in work.data.splits}
        self._pixels = {name: Rows(file, "pixels") for name, file in files.items()}
        self._labels = {
            name: column(read_batches(file), "label").astype(np.int64) for name, file in files.items()
        }
        shape = (1, work.data.channels, 1, 1)
        self._mean = torch.tensor(dataset.description["mean"], dtype=torch.float32).reshape(shape)
        self._deviation = torch.tensor(dataset.description["deviation"], dtype=torch.float32).reshape(shape)

    def build_model(self) -> torch.nn.Module:
        return build_network(self._model, self._data, len(self._classes), self.dataset.path / NETWORK)

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:
        shape = (-1, self._data.channels, self._data.size, self._data.size)
        pixels = self._pixels[split].take(chosen.numpy()).reshape(shape)
        if split == "train" and self._data.augmentation != "none":
            for at, number in enumerate(chosen.tolist()):
                pixels[at] = self._augmented(pixels[at], epoch, number)
        values = torch.from_numpy(pixels).to(torch.float32).div_(255)
        return {
            "pixel_values": values.sub_(self._mean).div_(self._deviation),
            "labels": torch.from_numpy(self._labels[split][chosen.numpy()]),
        }

    def _augmented(self, image: Pixels, epoch: int, number: int) -> Pixels:
        """An image as this epoch shows it: seed, epoch and the image's number decide, nothing else."""
        draw = np.random.Generator(
            np.random.PCG64(derive_seed(self.work.seed, "augmentation", epoch, number))
        )
        most, size = self._data.size // 8, self._data.size
        down, right, mirrored = draw.integers(0, (2 * most, 2 * most, 1), endpoint=True).tolist()
        edged = np.pad(image, ((0, 0), (most, most), (most, most)), mode="edge")
        moved = edged[:, down : down + size, right : right + size]
        return moved[:, :, ::-1] if mirrored and self._data.augmentation == "move-mirror" else moved

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(_logits(model, batch), batch["labels"])

    def predict(self, model: torch.nn.Module, batch: Batch) -> Batch:
        return {"logits": _logits(model, batch), "label": batch["labels"]}

    def score(self, predictions: Batch) -> torch.Tensor:
        logits, labels = predictions["logits"], predictions["label"]
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        hits = _likeliest(logits) == labels[:, None]
        return torch.stack([loss.double(), hits[:, 0].sum().double(), hits.sum().double()])

    def classes(self, predictions: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return _likeliest(predictions["logits"])[:, 0], predictions["label"]

    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        metrics: dict[str, float] = {
            "loss": sums["loss"] / samples,
            "accuracy": sums["correct"] / samples,
            "correct": int(sums["correct"]),
        }
        if len(self._classes) > FIRST:
            metrics["top_5_accuracy"] = sums["among_first"] / samples
        return metrics

    def further_metrics(
        self, predictions: Mapping[str, np.ndarray[Any, Any]], names: Sequence[str]
    ) -> dict[str, float]:
        return of_classes(predictions["logits"], predictions["label"], names)

    def data_name(self) -> str:
        data = self._data
        return f"{super().data_name()}, {data.size} x {data.size} pixels, {data.channels} channels"

    def save_model(self, model: torch.nn.Module, folder: Path) -> None:
        """Weights, configuration and preprocessing, for `from_pretrained` of AutoModelForImageClassification
        and AutoImageProcessor.

        That scales and cuts as `Images.pixels` does; only where the longer side is scaled to no whole number
        of pixels may it take one less. Grey is not made of colours: images of one channel must be grey.
        """
        network: Any = model
        network.config.id2label = dict(enumerate(self._classes))
        network.config.label2id = {name: number for number, name in enumerate(self._classes)}
        network.save_pretrained(folder)
        size = self._data.size
        preprocessing = {
            "image_processor_type": "BitImageProcessor",
            "do_convert_rgb": self._data.channels == 3,
            "do_resize": True,
            "size": {"shortest_edge": size},
            "resample": int(FILTER),
            "do_center_crop": True,
            "crop_size": {"height": size, "width": size},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": self.dataset.description["mean"],
            "image_std": self.dataset.description["deviation"],
        }
        text = json.dumps(preprocessing, indent=2)
        (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")


def _likeliest(logits: torch.Tensor) -> torch.Tensor:
    """Numbers of the likeliest classes, the likeliest first: int64 [samples, at most FIRST]."""
    return logits.topk(min(FIRST, logits.shape[1]), dim=1).indices


def _logits(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Fp32 [samples, classes]."""
    logits: torch.Tensor = model(pixel_values=batch["pixel_values"]).logits
    return logits
