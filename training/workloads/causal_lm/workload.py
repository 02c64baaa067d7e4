"""A decoder learns to continue texts; `Workload` says what each part must do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from training.data.prepared import Dataset, Rows
from training.spec import Conditions, Work
from training.workload import Batch, Workload
from training.workloads.causal_lm.prepare import DECODER, END, TOKENIZER
from training.workloads.causal_lm.settings import Data, ScratchModel


class CausalLM(Workload):
    """Blocks of tokens; cross entropy of each token given those before it, and perplexity."""

    SUMS = ("loss",)

    def __init__(self, work: Work, dataset: Dataset, conditions: Conditions, run: Path) -> None:
        super().__init__(work, dataset, conditions, run)
        assert isinstance(work.data, Data)
        self._data = work.data
        self._splits = {name: Rows(dataset.path / f"{name}.arrow", "input_ids") for name in work.data.splits}

    def build_model(self) -> torch.nn.Module:
        if not isinstance(self.work.model, ScratchModel):
            loaded: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
                self.dataset.path / DECODER, attn_implementation="sdpa", dtype=torch.float32
            )
            return loaded
        shape, entries = self.work.model, int(self.dataset.description["vocabulary"])
        settings: dict[str, Any] = {  # not all of them are in the class's own annotations
            "vocab_size": entries,
            "n_positions": self._data.block,
            "n_embd": shape.hidden,
            "n_layer": shape.layers,
            "n_head": shape.heads,
            "resid_pdrop": shape.dropout,
            "embd_pdrop": shape.dropout,
            "attn_pdrop": shape.dropout,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "use_cache": False,
            "attn_implementation": "sdpa",
        }
        return GPT2LMHeadModel(GPT2Config(**settings))

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:  # noqa: ARG002  # each alike
        return {"input_ids": torch.from_numpy(self._splits[split].take(chosen.numpy())).to(torch.int64)}

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return _losses(model, batch).mean()

    def predict(self, model: torch.nn.Module, batch: Batch) -> Batch:
        """The mean loss of each block's tokens."""
        return {"loss": _losses(model, batch).double().mean(dim=1)}

    def score(self, predictions: Batch) -> torch.Tensor:
        return predictions["loss"].sum().reshape(1)

    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:
        loss = sums["loss"] / samples
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}  # a float holds no more than e^709

    def data_name(self) -> str:
        data = self._data
        return f"{super().data_name()}, {data.block} tokens ({data.pretrained or data.tokenizer})"

    def save_model(self, model: torch.nn.Module, folder: Path) -> None:
        """Weights, configuration and tokenizer, for `from_pretrained` of AutoModelForCausalLM and such."""
        path = self.dataset.path
        if (path / DECODER).is_dir():
            tokenizer = AutoTokenizer.from_pretrained(path / DECODER)
        else:
            fast: Any = PreTrainedTokenizerFast
            tokenizer = fast(tokenizer_file=str(path / TOKENIZER), bos_token=END, eos_token=END)
            tokenizer.model_max_length = self._data.block
        network: Any = model
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _losses(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """The loss of each token but the first, fp32 [blocks, tokens - 1]."""
    ids = batch["input_ids"]
    logits = model(input_ids=ids).logits[:, :-1]  # [blocks, tokens - 1, vocabulary]
    return functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
