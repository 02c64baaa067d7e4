"""The network, its initialisation, its learning-rate schedule and the digest of its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from training.data.dataset import Dataset
from training.spec import PretrainedModel, ScratchModel, Work
from training.util.seeds import derive_seed

LABELS = 2
POSITIONS = 512  # BERT's; a shorter max_length uses the first of them, so the shape does not depend on it
DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "seq_classif_dropout",
)
"""Names of the dropout settings in encoders' configurations."""


def build_model(work: Work, data: Dataset) -> torch.nn.Module:
    """The network for two classes, fp32, on the CPU; `work.seed` alone decides its random weights.

    Takes int64 `input_ids` and `attention_mask` [reviews, length]; returns `.logits`, fp32 [reviews, 2].
    """
    torch.manual_seed(derive_seed(work.seed, "model"))
    if isinstance(work.model, PretrainedModel):
        model = _pretrained(work.model, data)
    else:
        model = _scratch(work.model, data.vocabulary, max(POSITIONS, work.data.max_length))
    if work.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    network: torch.nn.Module = model
    return network


def model_name(work: Work) -> str:
    """The network in a few words."""
    model = work.model
    if isinstance(model, PretrainedModel):
        return f"{work.data.pretrained} (pretrained)"
    return f"{model.architecture} from scratch ({model.layers} layers, {model.hidden} wide)"


def _scratch(shape: ScratchModel, vocabulary: int, positions: int) -> Any:
    settings: dict[str, Any] = {  # not all of them are in the class's own annotations
        "vocab_size": vocabulary,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "hidden_dropout_prob": shape.dropout,
        "attention_probs_dropout_prob": shape.dropout,
        "max_position_embeddings": positions,
        "num_labels": LABELS,
        "attn_implementation": "sdpa",
    }
    return BertForSequenceClassification(BertConfig(**settings))


def _pretrained(spec: PretrainedModel, data: Dataset) -> Any:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    changed: dict[str, Any] = {"num_labels": LABELS, "attn_implementation": "sdpa", "dtype": torch.float32}
    if spec.dropout is not None:
        config = AutoConfig.from_pretrained(data.encoder)
        changed |= {name: spec.dropout for name in DROPOUTS if hasattr(config, name)}
    return AutoModelForSequenceClassification.from_pretrained(data.encoder, **changed)


def learning_rate_factor(step: int, warmup: int, steps: int) -> float:
    """The factor on the learning rate in step `step` (from 0) of `steps`.

    Linear warm-up over the first `warmup` steps, then linear decay to zero (as in Devlin et al., 2018).
    """
    if step < warmup:
        return step / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))


def weights_digest(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over name, dtype, shape and bytes of every tensor in a `state_dict`, sorted by name.

    Equal digests mean equal weights to the last bit, on any device of the same byte order.
    """
    sha = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        sha.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()
