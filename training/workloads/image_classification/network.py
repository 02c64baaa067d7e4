"""The residual network and the classifier on top."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForImageClassification, ResNetConfig, ResNetForImageClassification
from transformers.image_processing_base import ImageProcessingMixin

from training.data.pretrained import Place
from training.errors import DataError
from training.workloads.image_classification.settings import Data, Model, ScratchModel

#: Blocks of each of the four stages, and whether they have three layers instead of two (He et al., 2015).
SHAPES: Final = {
    18: ([2, 2, 2, 2], False),
    34: ([3, 4, 6, 3], False),
    50: ([3, 4, 6, 3], True),
    101: ([3, 4, 23, 3], True),
    152: ([3, 8, 36, 3], True),
}


def build_network(model: Model, data: Data, classes: int, pretrained: Path) -> torch.nn.Module:
    """The network, fp32, on the CPU.

    Takes fp32 `pixel_values` [samples, channels, size, size]; returns fp32 `.logits` [samples, classes].

    Args:
        model: which one.
        data: the images that it takes.
        classes: their number.
        pretrained: folder of the pretrained network.
    """
    if not isinstance(model, ScratchModel):
        loaded: torch.nn.Module = AutoModelForImageClassification.from_pretrained(
            pretrained, num_labels=classes, dtype=torch.float32
        )
        return loaded
    depths, bottleneck = SHAPES[model.layers]
    settings: dict[str, Any] = {  # not all of them are in the class's own annotations
        "num_channels": data.channels,
        "embedding_size": model.width,
        "hidden_sizes": [model.width * 2**stage * (4 if bottleneck else 1) for stage in range(4)],
        "depths": depths,
        "layer_type": "bottleneck" if bottleneck else "basic",
        "num_labels": classes,
    }
    return ResNetForImageClassification(ResNetConfig(**settings))


def normalisation_of(place: Place, channels: int) -> dict[str, list[float]]:
    """`mean` and `deviation` of each channel that a pretrained network expects, for pixels from 0 to 1.

    Raises:
        DataError: it does not say so.
    """
    said, _ = place.load(ImageProcessingMixin.get_image_processor_dict)
    found: dict[str, list[float]] = {}
    for name, key in (("mean", "image_mean"), ("deviation", "image_std")):
        values = said.get(key)
        if not isinstance(values, list) or len(values) != channels:
            raise DataError(
                f"The preprocessor_config.json of {place.name} has no {key} of {channels} channels; "
                "use another network, or another number of channels."
            )
        found[name] = values
    return found


def check_channels(network: Any, data: Data) -> None:
    """Check that a pretrained network takes images with as many channels as the data have.

    Raises:
        DataError: it does not.
    """
    takes = getattr(network.config, "num_channels", data.channels)
    if takes != data.channels:
        raise DataError(
            f"{data.pretrained} takes images of {takes} channels, but data.channels is {data.channels}."
        )
