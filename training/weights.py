"""The digest of a model's weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch


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
