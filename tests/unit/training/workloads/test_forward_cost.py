"""What a step computes, by formula, is what torch counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from training.settings import ForwardCost, ModelSettings
from training.workloads.causal_lm import settings as causal_lm
from training.workloads.text_classification import settings as text_classification
from training.workloads.text_classification.skipping import skip

TEXTS = text_classification.Data(train=1, validation=1, seed=1, max_length=48, vocabulary=300)
BLOCKS = causal_lm.Data(source="movie-reviews", train=1, validation=1, seed=1, block=48, vocabulary=300)
SHAPE: dict[str, int] = {"layers": 3, "hidden": 64, "heads": 4}


def counted(network: Any, labels: torch.Tensor) -> tuple[int, int]:
    """Operations of a forward pass over two samples of 48 tokens, and of both passes."""
    ids = torch.arange(2 * 48).reshape(2, 48)
    counts = []
    with sdpa_kernel(SDPBackend.MATH):  # whose matrix products torch counts on a CPU, too
        for backward in (False, True):
            with FlopCounterMode(display=False) as counter:
                loss = network(input_ids=ids, labels=labels).loss
                if backward:
                    loss.backward()
            counts.append(counter.get_total_flops())
    forward, both = counts
    return forward, both


@pytest.mark.parametrize("last_layer", ["all_tokens", "first_token"])
def test_of_a_bert(last_layer: str) -> None:
    model = text_classification.ScratchModel.model_validate(
        SHAPE | {"intermediate": 96, "last_layer": last_layer}
    )
    network = BertForSequenceClassification(
        BertConfig(
            vocab_size=300,
            num_hidden_layers=3,
            hidden_size=64,
            num_attention_heads=4,
            intermediate_size=96,
        )
    )
    skip(network, padding=False, other_tokens=last_layer == "first_token")
    forward, both = counted(network, torch.tensor([0, 1]))
    cost = model.forward_cost(TEXTS)
    assert cost is not None
    head = 2 * (64 * 64 + 64 * 2)  # the pooler and the classifier, for one token
    assert forward == 2 * (cost.flop + head)
    assert both == pytest.approx(3 * forward, rel=0.01)
    queries = 1 if last_layer == "first_token" else 48
    assert cost.attention_weights == 4 * 48 * (48 + 48 + queries)


def test_of_a_gpt_2() -> None:
    model = causal_lm.ScratchModel.model_validate(SHAPE)
    network = GPT2LMHeadModel(GPT2Config(vocab_size=300, n_positions=48, n_embd=64, n_layer=3, n_head=4))
    forward, both = counted(network, torch.arange(2 * 48).reshape(2, 48))
    cost = model.forward_cost(BLOCKS)
    assert forward == 2 * cost.flop
    assert both == pytest.approx(3 * forward, rel=0.01)
    assert cost.attention_weights == 3 * 4 * 48**2


@pytest.mark.parametrize(
    "model",
    [
        text_classification.PretrainedModel(init="pretrained"),
        text_classification.ScratchModel(architecture="distilbert"),
        text_classification.ScratchModel(config={"position_embedding_type": "relative_key"}),
    ],
)
def test_others_do_not_say(model: ModelSettings) -> None:
    found: ForwardCost | None = model.forward_cost(TEXTS)
    assert found is None
