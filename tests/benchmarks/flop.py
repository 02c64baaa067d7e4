"""Floating-point operations of a step: counted as they happen, and by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from tests.benchmarks.bert import step
from training.state import Training
from training.workloads.text_classification.settings import ScratchModel

PASSES = 3  # forward; in the backward pass the gradients of inputs and of weights


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_backward_flop_count(gradient, query, key, value))  # type: ignore[no-untyped-call]


#: The kernels of attention that torch's counter doesn't know, by the shapes that they are given.
KERNELS: Final = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def counted(training: Training, chosen: torch.Tensor) -> int:
    """FLOP of the matrix products in a step, which is taken."""
    with FlopCounterMode(display=False, custom_mapping=KERNELS) as counter:
        step(training, chosen)
    return int(counter.get_total_flops())


def by_arithmetic(model: ScratchModel, lengths: Sequence[int], outputs: int, filling: int = 0) -> int:
    """FLOP of the matrix products in a step; the rest of its FLOP is not worth counting.

    Attention that drops no weights has a kernel that computes them once more in the backward pass.

    Args:
        model: a BERT.
        lengths: tokens that are computed of each sample, padding included.
        outputs: of the classifier.
        filling: tokens that are no sample's, which products with weights compute and attention does not.
    """
    width, inner = model.hidden, model.intermediate
    head = 2 * width * width + 2 * width * outputs
    again = 1 / 2 / PASSES if model.attention_dropout == 0 else 0
    total = 0.0
    for layer in range(1, model.layers + 1):
        alone = layer == model.layers and model.last_layer == "first_token"
        for tokens, of_sample in [*((each, True) for each in lengths), (filling, False)]:
            queries = int(of_sample) if alone else tokens
            keys_and_values = 2 * (2 * tokens * width * width)
            query_and_output = 2 * (2 * queries * width * width)
            attention = 2 * (2 * queries * tokens * width) * (1 + again) if of_sample else 0
            total += keys_and_values + query_and_output + attention + 2 * (2 * queries * width * inner)
    return round(PASSES * (total + head * len(lengths)))
