"""The digest of weights."""

from __future__ import annotations

import torch

from training.weights import weights_digest


def test_the_digest_sees_names_shapes_types_and_the_last_bit() -> None:
    state = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.tensor(1.0)}
    digest = weights_digest(state)
    assert weights_digest(dict(reversed(state.items()))) == digest
    assert weights_digest({"b": state["b"].T.contiguous().T, "a": state["a"]}) == digest
    changed = state["b"].clone()
    changed[1, 2] = torch.nextafter(changed[1, 2], torch.tensor(9.0))
    others = [
        {"b": changed, "a": state["a"]},
        {"b": state["b"].reshape(3, 2), "a": state["a"]},
        {"b": state["b"], "c": state["a"]},
        {"b": state["b"].to(torch.bfloat16), "a": state["a"]},
    ]
    assert len({digest, *map(weights_digest, others)}) == 5
