"""What a model computes in, as the work's `precision` says. Its weights are fp32 in any case."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def computing(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """While this is open, a model on `device` computes in this precision: forward pass and loss belong here.

    The backward pass computes as the forward pass did, wherever it is called.

    Args:
        precision: the work's.
        device: the model's.
    """
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def return_fp32(network: torch.nn.Module) -> None:
    """Have a network return fp32 in the place of bf16 from now on, so that loss and metrics begin with it.

    (Of a cross entropy on a CPU, autocast itself would leave everything in bf16.)
    """
    network.register_forward_hook(lambda _, __, found: in_fp32(found))


def in_fp32(found: Any) -> Any:
    """What a network returned, with fp32 in the place of bf16.

    Tensors are found in tuples, lists and mappings (transformers' outputs are such), which are changed in
    place; all else stays as it is.
    """
    if isinstance(found, torch.Tensor):
        return found.float() if found.dtype == torch.bfloat16 else found
    if isinstance(found, MutableMapping):
        for name, each in found.items():
            found[name] = in_fp32(each)
    elif type(found) in (tuple, list):
        return type(found)(in_fp32(each) for each in found)
    return found
