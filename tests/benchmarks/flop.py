"""Floating-point operations of a step: counted as they happen, and by arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.benchmarks.bert import step
from training.state import Training
from training.workloads.text_classification.settings import ScratchModel

PASSES = 3  # forward; in the backward pass the gradients of inputs and of weights


def counted(training: Training, chosen: torch.Tensor) -> int:
    """FLOP of the matrix products in a step, which is taken."""
    with FlopCounterMode(display=False) as counter:
        step(training, chosen)
    return int(counter.get_total_flops())


def by_arithmetic(model: ScratchModel, lengths: Iterable[int], outputs: int) -> int:
    """FLOP of the matrix products in a step; the rest of its FLOP is not worth counting.

    Args:
        model: a BERT.
        lengths: tokens that are computed of each sample, padding included.
        outputs: of the classifier.
    """
    width, inner = model.hidden, model.intermediate
    head = 2 * width * width + 2 * width * outputs
    total = 0
    for tokens in lengths:
        for layer in range(1, model.layers + 1):
            alone = layer == model.layers and model.last_layer == "first_token"
            queries = 1 if alone else tokens
            keys_and_values = 2 * (2 * tokens * width * width)
            query_and_output = 2 * (2 * queries * width * width)
            attention = 2 * (2 * queries * tokens * width)
            total += keys_and_values + query_and_output + attention + 2 * (2 * queries * width * inner)
        total += head
    return PASSES * total
