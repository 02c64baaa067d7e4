"""A transformer encoder learns to tell the class of a text; `Workload` says what each part must do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from training.data.prepared import Dataset
from training.spec import Conditions, Work
from training.workload import Batch, Workload
from training.workloads.text_classification.in_run import find_tokens
from training.workloads.text_classification.model import build_model
from training.workloads.text_classification.settings import Data, Model
from training.workloads.text_classification.splits import ENCODER, TOKENIZER, open_splits


class TextClassification(Workload):
    """Texts of two classes or more; cross entropy, and accuracy."""

    SUMS = ("loss", "correct")

    def __init__(self, work: Work, dataset: Dataset, conditions: Conditions, run: Path) -> None:
        assert isinstance(work.data, Data) and isinstance(work.model, Model)
        self.work, self.dataset = work, dataset
        self.conditions, self.run = conditions, run
        self._data, self._model = work.data, work.model
        how = conditions.tokenizing
        tokens = find_tokens(run) if how == "in_run" else None
        self._splits = open_splits(dataset, in_loop=how == "in_loop", tokens=tokens)

    def build_model(self) -> torch.nn.Module:
        return build_model(self._model, self._data, self.dataset)

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:  # noqa: ARG002  # each alike
        rows, texts = chosen.numpy(), self._splits[split]
        ids, mask = texts.tokens(rows)
        columns = {"input_ids": ids, "attention_mask": mask, "labels": texts.labels[rows]}
        return {name: torch.from_numpy(column).to(torch.int64) for name, column in columns.items()}

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(_logits(model, batch), batch["labels"])

    def score(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        logits, labels = _logits(model, batch), batch["labels"]
        loss = functional.cross_entropy(logits, labels, reduction="sum")
        return torch.stack([loss.double(), (logits.argmax(dim=1) == labels).sum().double()])

    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        loss, correct = sums["loss"], sums["correct"]
        return {"loss": loss / samples, "accuracy": correct / samples, "correct": int(correct)}

    def model_name(self) -> str:
        return self._model.text(self._data)

    def data_name(self) -> str:
        data = self._data
        return f"{super().data_name()}, {data.max_length} tokens ({data.pretrained or data.tokenizer})"

    def save_model(self, model: torch.nn.Module, folder: Path) -> None:
        """Weights, configuration and tokenizer, for `from_pretrained` of AutoModelForSequenceClassification
        and AutoTokenizer."""
        network: Any = model
        names = self._data.class_names
        network.config.id2label = dict(enumerate(names))
        network.config.label2id = {name: number for number, name in enumerate(names)}
        path = self.dataset.path
        if (path / ENCODER).is_dir():
            tokenizer = AutoTokenizer.from_pretrained(path / ENCODER)
        else:
            special = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("unk", "cls", "sep", "pad", "mask")}
            fast: Any = PreTrainedTokenizerFast
            tokenizer = fast(tokenizer_file=str(path / TOKENIZER), **special)
        tokenizer.model_max_length = self._data.max_length
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _logits(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Fp32 [samples, classes]."""
    logits: torch.Tensor = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return logits
