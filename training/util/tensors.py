"""Tensors as bytes."""

from __future__ import annotations

import io
from typing import Any

import torch


def serialised(state: dict[str, Any]) -> memoryview:
    """What `torch.save` makes of a state, in memory: its error for a disk that fills up midway is unclear."""
    content = io.BytesIO()
    torch.save(state, content)
    return content.getbuffer()
