"""How much padding the model computes, as the work's `padding` says: all, or less."""

from __future__ import annotations

from typing import Any

import torch

from training.workload import Batch


def to_longest(tokens: Batch) -> Batch:
    """A batch without the columns that are padding in each of its samples, which are padded at their ends.

    Args:
        tokens: `input_ids`, `attention_mask` and the like, each [samples, length].
    """
    length = int(tokens["attention_mask"].sum(dim=1).max())
    return {name: each[:, :length] for name, each in tokens.items()}


def packed(tokens: Batch) -> dict[str, Any]:
    """A batch's tokens without its padding, sample after sample, as `skipping.skip` has BERT take them.

    Args:
        tokens: `input_ids`, `attention_mask` and the like, each [samples, length].

    Returns:
        Instead of the mask, `position_ids`, `lengths` (a list: tokens of each sample), and `begins` (int64
        [samples]: where each begins); all columns are [1, tokens].
    """
    there = tokens["attention_mask"].bool()
    columns = {name: each for name, each in tokens.items() if name != "attention_mask"}
    columns["position_ids"] = torch.arange(there.shape[1], device=there.device).expand_as(there)
    rows = {name: each[there][None] for name, each in columns.items()}
    lengths = there.sum(dim=1)
    return {**rows, "lengths": lengths.tolist(), "begins": lengths.cumsum(dim=0) - lengths}


def masked(tokens: Batch) -> Batch:
    """A batch's tokens with the mask that attention takes, which transformers need not look at any more.

    Args:
        tokens: `input_ids`, `attention_mask` and the like, each [samples, length].

    Returns:
        As `attention_mask`, bool [samples, 1, 1, length]: what each token may see. Without padding, none.
    """
    mask = tokens["attention_mask"].bool()
    others = {name: each for name, each in tokens.items() if name != "attention_mask"}
    return others if mask.all() else others | {"attention_mask": mask[:, None, None, :]}
