"""The requested work in a few words."""

from __future__ import annotations

from training.spec import PretrainedModel, Work


def model_text(work: Work) -> str:
    """The model that `work` trains, in a few words."""
    model = work.model
    if isinstance(model, PretrainedModel):
        return f"{work.data.pretrained} ({work.data.revision}), pretrained"
    return (
        f"{model.architecture}, {model.layers} layers, {model.hidden} wide, {model.heads} heads, from scratch"
    )
