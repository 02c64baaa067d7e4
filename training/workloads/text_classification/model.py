"""The encoder and the classifier on top."""

from __future__ import annotations

from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from training.data.prepared import Dataset
from training.workloads.text_classification.settings import Data, Model, PretrainedModel, ScratchModel
from training.workloads.text_classification.splits import encoder_folder, vocabulary

POSITIONS = 512  # BERT's; a shorter max_length uses the first of them, so the shape does not depend on it
DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "seq_classif_dropout",
)
"""Names of the dropout settings in encoders' configurations."""


def build_model(model: Model, data: Data, dataset: Dataset) -> torch.nn.Module:
    """The network for the classes of `data`, fp32, on the CPU.

    Takes int64 `input_ids` and `attention_mask` [samples, length]; returns fp32 `.logits` [samples, classes].
    """
    classes = len(data.class_names)
    if isinstance(model, PretrainedModel):
        network = _pretrained(model, classes, dataset)
    else:
        assert isinstance(model, ScratchModel)
        network = _scratch(model, classes, vocabulary(dataset), max(POSITIONS, data.max_length))
    built: torch.nn.Module = network
    return built


def _scratch(shape: ScratchModel, classes: int, entries: int, positions: int) -> Any:
    settings: dict[str, Any] = {  # not all of them are in the class's own annotations
        "vocab_size": entries,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "hidden_dropout_prob": shape.dropout,
        "attention_probs_dropout_prob": shape.dropout,
        "max_position_embeddings": positions,
        "num_labels": classes,
        "attn_implementation": "sdpa",
    }
    return BertForSequenceClassification(BertConfig(**settings))


def _pretrained(spec: PretrainedModel, classes: int, dataset: Dataset) -> Any:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    folder = encoder_folder(dataset)
    changed: dict[str, Any] = {"num_labels": classes, "attn_implementation": "sdpa", "dtype": torch.float32}
    if spec.dropout is not None:
        config = AutoConfig.from_pretrained(folder)
        changed |= {name: spec.dropout for name in DROPOUTS if hasattr(config, name)}
    return AutoModelForSequenceClassification.from_pretrained(folder, **changed)
