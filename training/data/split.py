"""Splits of labelled samples, with the classes in proportion."""

from __future__ import annotations

import random
from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from training.errors import DataError


def split_by_class(
    labels: Sequence[int], sizes: Mapping[str, int], seed: int, classes: int = 2
) -> dict[str, array[int]]:
    """Numbers of the samples of some splits of these sizes, drawn and shuffled by the seed.

    Args:
        labels: the class of each sample, from 0.
        sizes: samples of each split, by its name.
        seed: of the draw.
        classes: how many there are.

    Raises:
        DataError: there are fewer samples than asked for, or they are of one class only.
    """
    _check_enough(len(labels), sizes)
    members = [array("q") for _ in range(classes)]
    for number, label in enumerate(labels):
        members[label].append(number)
    there = [label for label, found in enumerate(members) if found]
    if len(there) == 1:
        raise DataError(
            f"All {len(labels)} samples have the label {there[0]}; two classes are needed to learn from."
        )
    draw = random.Random(seed)
    for found in members:
        draw.shuffle(found)
    splits = (_of_two if classes == 2 else _of_many)(members, list(sizes.values()))
    for split in splits:
        draw.shuffle(split)
    return dict(zip(sizes, splits, strict=True))


def split_at_random(samples: int, sizes: Mapping[str, int], seed: int) -> dict[str, array[int]]:
    """Numbers of the samples of some splits of these sizes, drawn by the seed from `samples` of them.

    Raises:
        DataError: there are fewer samples than asked for.
    """
    _check_enough(samples, sizes)
    numbers = array("q", range(samples))
    random.Random(seed).shuffle(numbers)
    return dict(zip(sizes, _cut(numbers, list(sizes.values())), strict=True))


def _check_enough(samples: int, sizes: Mapping[str, int]) -> None:
    if sum(sizes.values()) > samples:
        asked = " and ".join(f"{size} for {name}" for name, size in sizes.items())
        raise DataError(
            f"More samples were asked for ({asked}) than the {samples} that there are; ask for fewer."
        )


def _cut(numbers: array[int], sizes: Sequence[int]) -> list[array[int]]:
    return [numbers[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]


def _of_two(members: list[array[int]], sizes: Sequence[int]) -> list[array[int]]:
    """Two classes in proportion."""
    # How many of the first n samples drawn are positive; what rounding leaves over is in the next split.
    ends = list(accumulate(sizes, initial=0))
    positive = [end * len(members[1]) // sum(map(len, members)) for end in ends]
    negative = [end - of_them for end, of_them in zip(ends, positive, strict=True)]
    return [
        members[0][slice(*zeros)] + members[1][slice(*ones)]
        for zeros, ones in zip(pairwise(negative), pairwise(positive), strict=True)
    ]


def _of_many(members: list[array[int]], sizes: Sequence[int]) -> list[array[int]]:
    """Any number of classes in proportion: the n-th of a class comes n-th along its share of the whole."""
    there = [found for found in members if found]  # in the order of their classes, which decides a tie
    along = np.concatenate([(np.arange(len(found)) + 0.5) / len(found) for found in there])
    order = np.argsort(along, kind="stable")[: sum(sizes)]
    drawn = np.concatenate([np.frombuffer(found, dtype=np.int64) for found in there])[order]
    return _cut(array("q", drawn.tobytes()), sizes)
