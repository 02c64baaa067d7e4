"""How much padding the model computes, as the work's `padding` says: all, or less."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn import functional

from training.workload import Batch

ROUNDED_TO: Final = 64
"""Tokens, of packed batches on a CPU. For each shape oneDNN compiles GELU, and in bf16 products, and keeps
1,024 such programs. Of BERT-tiny, a step whose number of tokens is new takes 14 ms longer in bf16; in fp32
it adds 4 MB to the process, since what is kept cuts freed memory into pieces (torch 2.13, AMD EPYC)."""


def to_longest(tokens: Batch) -> Batch:
    """A batch without the columns that are padding in each of its samples, which are padded at their ends.

    Args:
        tokens: `input_ids`, `attention_mask` and the like, each [samples, length].
    """
    length = int(tokens["attention_mask"].sum(dim=1).max())
    return {name: each[:, :length] for name, each in tokens.items()}


def packed(tokens: Batch, multiple: int = 1) -> dict[str, Any]:
    """A batch's tokens without its padding, sample after sample, as `skipping.skip` has BERT take them.

    Args:
        tokens: `input_ids`, `attention_mask` and the like, each [samples, length].
        multiple: of which the number of tokens is to be one; tokens that nothing reads fill it up.

    Returns:
        Instead of the mask, `position_ids`, `lengths` (a list: tokens of each sample), and `begins` (int64
        [samples]: where each begins); all columns are [1, tokens].
    """
    there = tokens["attention_mask"].bool()
    columns = {name: each for name, each in tokens.items() if name != "attention_mask"}
    columns["position_ids"] = torch.arange(there.shape[1], device=there.device).expand_as(there)
    lengths = there.sum(dim=1)
    begins, counts = lengths.cumsum(dim=0) - lengths, lengths.tolist()
    more = -sum(counts) % multiple
    rows = {name: functional.pad(each[there], (0, more))[None] for name, each in columns.items()}
    return {**rows, "lengths": counts, "begins": begins}


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
