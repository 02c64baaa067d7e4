"""The encoder and the classifier on top."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
)

from training.data.prepared import Dataset
from training.errors import WorkloadError, first_line
from training.workloads.text_classification.settings import Data, Model, PretrainedModel, ScratchModel
from training.workloads.text_classification.splits import encoder_folder, vocabulary

POSITIONS: Final = (
    512  # BERT's; a shorter max_length uses the first of them, so the shape does not depend on it
)
DROPOUTS: Final = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "seq_classif_dropout",
)
"""Names of the dropout settings in encoders' configurations."""

OF_ATTENTION: Final = ("attention_probs_dropout_prob", "attention_dropout")
"""Those of the weights of attention."""

INTERMEDIATE: Final = ("intermediate_size", "hidden_dim", "n_inner", "d_inner")
"""Names of the width of the feed-forward layers in encoders' configurations."""


def build_model(model: Model, data: Data, dataset: Dataset) -> torch.nn.Module:
    """The network for what is predicted of `data`, fp32, on the CPU.

    Takes int64 `input_ids` and `attention_mask` [samples, length]; returns fp32 `.logits` [samples, outputs].

    Raises:
        WorkloadError: transformers can't build it.
    """
    if isinstance(model, PretrainedModel):
        network = _pretrained(model, data.outputs, dataset)
    else:
        assert isinstance(model, ScratchModel)
        build = _bert if model.architecture == "bert" and not model.config else _any
        network = build(model, data.outputs, vocabulary(dataset), max(POSITIONS, data.max_length))
    built: torch.nn.Module = network
    return built


def _bert(shape: ScratchModel, outputs: int, entries: int, positions: int) -> Any:
    settings: dict[str, Any] = {  # not all of them are in the class's own annotations
        "vocab_size": entries,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "hidden_dropout_prob": shape.dropout,
        "attention_probs_dropout_prob": shape.dropout
        if shape.attention_dropout is None
        else shape.attention_dropout,
        "max_position_embeddings": positions,
        "num_labels": outputs,
        "attn_implementation": "sdpa",
    }
    return BertForSequenceClassification(BertConfig(**settings))


def _any(shape: ScratchModel, outputs: int, entries: int, positions: int) -> Any:
    """An encoder of transformers, by the names that most of its configurations share."""
    name = shape.architecture
    try:
        usual = AutoConfig.for_model(name)
    except ValueError as error:
        raise WorkloadError(f"transformers has no architecture {name} (model.architecture).") from error
    known = {*usual.to_dict(), *usual.attribute_map}
    settings: dict[str, Any] = {
        "vocab_size": entries,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        next((each for each in INTERMEDIATE if each in known), INTERMEDIATE[0]): shape.intermediate,
        **_dropouts(shape, name, known),
        "max_position_embeddings": positions + 2,  # some leave out the first two
        **shape.config,
    }
    # Its configuration would take any name, and the network would not heed it.
    if unknown := sorted(set(settings) - known):
        raise WorkloadError(
            f"The configuration of {name} has no {' and no '.join(unknown)}, so it can't be built from "
            "these settings; it has " + ", ".join(sorted(known)) + "."
        )
    # The ids of special tokens are the tokenizer's, which pads with 0; the usual ones may not exist.
    special = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "num_labels": outputs}
    try:
        config = AutoConfig.for_model(name, **(settings | special))
        return AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever transformers raises
        raise WorkloadError(
            f"transformers can't build a {name} for classification from these settings: "
            f"{first_line(error):.300}"
        ) from error


def _dropouts(model: ScratchModel | PretrainedModel, kind: str, known: Collection[str]) -> dict[str, float]:
    """The settings of dropout in the configuration of an encoder.

    Args:
        model: as it is asked for.
        kind: of encoder.
        known: names that its configuration has, among others.

    Raises:
        WorkloadError: attention is to have another one, and the configuration has none for it.
    """
    of_all, of_attention = model.dropout, model.attention_dropout
    found = {} if of_all is None else {name: of_all for name in DROPOUTS if name in known}
    if of_attention is not None:
        own = [name for name in OF_ATTENTION if name in known]
        if not own:
            raise WorkloadError(
                f"The configuration of {kind} has no dropout of attention alone (model.attention_dropout); "
                "leave it out."
            )
        found |= dict.fromkeys(own, of_attention)
    return found


def _pretrained(spec: PretrainedModel, outputs: int, dataset: Dataset) -> Any:
    folder = encoder_folder(dataset)
    changed: dict[str, Any] = {"num_labels": outputs, "dtype": torch.float32}
    if (spec.dropout, spec.attention_dropout) != (None, None):
        config = AutoConfig.from_pretrained(folder)
        there = {name for name in DROPOUTS if hasattr(config, name)}
        changed |= _dropouts(spec, config.model_type, there)
    return AutoModelForSequenceClassification.from_pretrained(folder, **changed)
