"""Images to pixels of one size. Equal settings and images give equal bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from training.data.prepare import Place, Preparation
from training.data.prepared import write_batches
from training.data.pretrained import Place as Pretrained
from training.data.pretrained import find_pretrained, save_readable, with_pretrained
from training.data.progress import shown
from training.data.split import split_by_class
from training.workloads.image_classification.images import Digits, Folders, Images, Pixels
from training.workloads.image_classification.settings import Data

NETWORK: Final = "network"  # folder of the pretrained network, where the data set has one
AT_ONCE: Final = 256  # images in a batch of an Arrow file


def prepare(data: Data, place: Place) -> Preparation:
    """The images that `data` names, split; they are scaled when they are written.

    Raises:
        DataError: the images or the network can't be loaded or used.
    """
    images: Images = Digits() if data.source == "digits" else Folders.open(data, place.files)
    splits = _draw(images, data)
    network = find_pretrained(data, place.files, "leave out data.pretrained and train from scratch")

    def write(folder: Path) -> dict[str, Any]:
        sums = PixelSums(data.channels)
        for name, numbers in splits.items():
            write_batches(
                folder / f"{name}.arrow",
                schema_of(data),
                _batches(images, numbers, data, sums if name == "train" else None),
            )
        counts = {name: _counted(images, numbers) for name, numbers in splits.items()}
        normalisation = sums.normalisation() if network is None else _network(data, network, folder)
        return {"counts": counts, "classes": images.classes} | normalisation

    source = {"name": data.source, "sha256": images.digest(), "note": images.note}
    return Preparation(source=with_pretrained(source, network), write=write)


class PixelSums:
    """Mean and deviation of each channel, from whole numbers: their order does not matter."""

    def __init__(self, channels: int) -> None:
        """Nothing is added up yet."""
        self._sums: list[list[int]] = [[0, 0] for _ in range(channels)]
        self._pixels = 0  # in each channel

    def add(self, image: Pixels) -> None:
        """Add an image, uint8 [channels, size, size]."""
        for sums, channel in zip(self._sums, image.astype(np.int64), strict=True):
            sums[0] += int(channel.sum())
            sums[1] += int((channel * channel).sum())
        self._pixels += image[0].size

    def normalisation(self) -> dict[str, list[float]]:
        """`mean` and `deviation` of each channel, for pixels from 0 to 1."""
        means = [total / self._pixels for total, _ in self._sums]
        variances = [
            squares / self._pixels - mean * mean for (_, squares), mean in zip(self._sums, means, strict=True)
        ]
        # A channel without any contrast is left as it is.
        return {
            "mean": [mean / 255 for mean in means],
            "deviation": [variance**0.5 / 255 if variance > 0 else 1.0 for variance in variances],
        }


def schema_of(data: Data) -> pa.Schema:
    """The columns of a split: pixels, channel by channel and line by line, and numbers of classes."""
    return pa.schema(
        [("pixels", pa.list_(pa.uint8(), data.channels * data.size * data.size)), ("label", pa.int16())]
    )


def _draw(images: Images, data: Data) -> dict[str, Sequence[int]]:
    """Numbers of the images of each split, by its name."""
    ends = [*list(images.starts.values())[1:], len(images.labels)]
    drawn: dict[str, Sequence[int]] = {}
    for (split, start), end in zip(images.starts.items(), ends, strict=True):
        others = [name for name in data.splits if split == "train" and name not in images.starts]
        sizes = {name: data.splits[name] for name in (split, *others)}
        found = split_by_class(images.labels[start:end], sizes, data.seed, len(images.classes))
        drawn |= {name: [start + number for number in numbers] for name, numbers in found.items()}
    return {name: drawn[name] for name in data.splits}


def _batches(
    images: Images, numbers: Sequence[int], data: Data, sums: PixelSums | None
) -> Iterator[pa.RecordBatch]:
    schema = schema_of(data)
    for at in shown(range(0, len(numbers), AT_ONCE), "scaling images", len(numbers), lambda _: AT_ONCE):
        chosen = numbers[at : at + AT_ONCE]
        pixels = np.stack([images.pixels(number, data.size, data.channels) for number in chosen])
        for image in pixels if sums else ():
            assert sums is not None
            sums.add(image)
        columns = [
            pa.FixedSizeListArray.from_arrays(pa.array(pixels.reshape(-1)), type=schema.field("pixels").type),
            pa.array([images.labels[number] for number in chosen], pa.int16()),
        ]
        yield pa.record_batch(columns, schema=schema)


def _counted(images: Images, numbers: Sequence[int]) -> dict[str, Any]:
    found = Counter(images.labels[number] for number in numbers)
    classes = {name: found[number] for number, name in enumerate(images.classes)}
    return {"samples": len(numbers), "classes": classes}


def _network(data: Data, place: Pretrained, folder: Path) -> dict[str, list[float]]:
    """Save the pretrained network in `folder`; returns the mean and deviation that it was trained with."""
    from training.workloads.image_classification.network import check_channels, normalisation_of

    network = place.model()
    check_channels(network, data)
    save_readable(network, folder / NETWORK)
    return normalisation_of(place, data.channels)
