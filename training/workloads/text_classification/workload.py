"""A transformer encoder learns what to say of a text or a pair; `Workload` says what each part must do."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from training.data.prepared import Dataset
from training.spec import Conditions, Work
from training.workload import Batch, Workload
from training.workloads.text_classification.in_run import find_tokens
from training.workloads.text_classification.model import build_model
from training.workloads.text_classification.padding import ROUNDED_TO, masked, packed, to_longest
from training.workloads.text_classification.problems import problem_of
from training.workloads.text_classification.settings import Data, Model
from training.workloads.text_classification.skipping import skip
from training.workloads.text_classification.splits import ENCODER, TOKENIZER, open_splits
from training.workloads.text_classification.untokenised import Tokenizing


class TextClassification(Workload):
    """Texts, or pairs of texts, with a class, several labels, or a number each."""

    def __init__(self, work: Work, dataset: Dataset, conditions: Conditions, run: Path) -> None:
        assert isinstance(work.data, Data) and isinstance(work.model, Model)
        self.work, self.dataset = work, dataset
        self.conditions, self.run = conditions, run
        self._data, self._model = work.data, work.model
        self._problem = problem_of(work.data)
        self.SUMS = self._problem.SUMS
        how = conditions.tokenizing
        tokens = find_tokens(run) if how == "in_run" else None
        threads = conditions.tokenizer_threads
        in_loop = Tokenizing(conditions.fast_tokenizer, threads) if how == "in_loop" else None
        self._splits = open_splits(dataset, in_loop=in_loop, tokens=tokens)

    def build_model(self) -> torch.nn.Module:
        built = build_model(self._model, self._data, self.dataset)
        compiled = self.conditions.compile
        unpadded, alone = self.work.padding == "none", self._model.last_layer == "first_token"
        if unpadded or alone:
            skip(built, padding=unpadded, other_tokens=alone)
        of_packed = ("lengths", "begins")
        self._takes = {*inspect.signature(built.forward).parameters, *of_packed}
        config: Any = built.config
        # A decoder hides more than padding. A program of torch.compile has one kind of mask, whatever it
        # hides.
        encodes = config.model_type == "bert" and not config.is_decoder
        self._masked = encodes and config._attn_implementation == "sdpa" and not compiled
        return built

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:  # noqa: ARG002  # each alike
        rows, texts = chosen.numpy(), self._splits[split]
        tokens = {
            name: torch.from_numpy(column).to(torch.int64) for name, column in texts.tokens(rows).items()
        }
        if self.work.padding == "longest":
            tokens = to_longest(tokens)  # here, not on the device: it would have to be waited for
        return tokens | {"labels": torch.from_numpy(texts.labels[rows]).to(self._problem.LABELS)}

    def ready(self, batch: Batch) -> dict[str, Any]:
        labels = {"labels": batch["labels"]}
        tokens = {name: each for name, each in batch.items() if name != "labels"}
        if self.work.padding == "none":
            return packed(tokens, self._multiple) | labels
        return (masked(tokens) if self._masked else tokens) | labels

    @property
    def _multiple(self) -> int:
        """Packed tokens are a multiple of this: on a CPU oneDNN compiles for each shape."""
        return ROUNDED_TO if self.conditions.device == "cpu" else 1

    def lengths(self) -> torch.Tensor:
        return torch.from_numpy(self._splits["train"].lengths)

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return self._problem.loss(self._logits(model, batch), batch["labels"])

    def _logits(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Fp32 [samples, outputs]; not all encoders take the types of pairs."""
        given: dict[str, Any] = {name: each for name, each in batch.items() if name != "labels"}
        if self.work.padding == "none" and "lengths" not in given:
            given = packed(given, self._multiple)
        mask = given.get("attention_mask")
        if mask is not None and mask.dtype == torch.bool:  # `ready` made it
            given["attention_mask"] = mask.expand(-1, -1, mask.shape[-1], -1)
        tokens = {name: each for name, each in given.items() if name in self._takes}
        logits: torch.Tensor = model(**tokens).logits
        return logits

    def predict(self, model: torch.nn.Module, batch: Batch) -> Batch:
        return self._problem.predictions(self._logits(model, batch), batch["labels"])

    def score(self, predictions: Batch) -> torch.Tensor:
        return torch.stack([each.double() for each in self._problem.score(predictions)])

    def classes(self, predictions: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return predictions["logits"].argmax(dim=1), predictions["label"]

    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        return self._problem.metrics(sums, samples)

    def further_metrics(
        self, predictions: Mapping[str, np.ndarray[Any, Any]], names: Sequence[str]
    ) -> dict[str, float]:
        return self._problem.further_metrics(predictions, names)

    def model_name(self) -> str:
        return self._model.text(self._data)

    def data_name(self) -> str:
        data = self._data
        return f"{super().data_name()}, {data.max_length} tokens ({data.pretrained or data.tokenizer})"

    def save_model(self, model: torch.nn.Module, folder: Path) -> None:
        """Weights, configuration and tokenizer, for `from_pretrained` of AutoModelForSequenceClassification
        and AutoTokenizer."""
        network: Any = model
        network.config.problem_type = self._data.problem_type
        if names := self._data.class_names:
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
