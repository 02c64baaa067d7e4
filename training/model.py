"""The network, its initialisation and its learning-rate schedule."""

from __future__ import annotations

from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from training.data import derive_seed
from training.spec import Work

LABELS = 2
POSITIONS = 512  # BERT's; a shorter max_length uses the first of them, so the shape does not depend on it


def build_model(work: Work) -> torch.nn.Module:
    """BERT for two classes with freshly drawn weights, decided by `work.seed` alone; fp32, on the CPU.

    From int64 `input_ids` and `attention_mask` [reviews, length] comes `.logits`, fp32 [reviews, 2].
    """
    shape = work.model
    torch.manual_seed(derive_seed(work.seed, "model"))
    settings: dict[str, Any] = {  # not all of them are in the class's own annotations
        "vocab_size": work.data.vocabulary,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "hidden_dropout_prob": shape.dropout,
        "attention_probs_dropout_prob": shape.dropout,
        "max_position_embeddings": POSITIONS,
        "num_labels": LABELS,
        "attn_implementation": "sdpa",
    }
    model: torch.nn.Module = BertForSequenceClassification(BertConfig(**settings))
    return model


def learning_rate_factor(step: int, warmup: int, steps: int) -> float:
    """What the learning rate is multiplied by in step `step` (from 0) of `steps`.

    Linear warm-up over the first `warmup` steps, then linear decay to zero (as in Devlin et al., 2018).
    """
    if step < warmup:
        return step / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))
