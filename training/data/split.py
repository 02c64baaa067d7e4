"""Two splits of labelled samples, with the classes in proportion."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import numpy as np

from training.errors import DataError


def split_by_class(
    labels: Sequence[int], train: int, validation: int, seed: int, classes: int = 2
) -> tuple[array[int], array[int]]:
    """Numbers of the samples of two splits of these sizes, drawn and shuffled by the seed.

    Args:
        labels: the class of each sample, from 0.
        train: samples of the first split.
        validation: samples of the second.
        seed: of the draw.
        classes: how many there are.

    Raises:
        DataError: there are fewer samples than asked for, or they are of one class only.
    """
    if train + validation > len(labels):
        asked = (
            f"{train} samples to train and {validation} to validate were"
            if validation
            else f"{train} samples were"
        )
        raise DataError(f"{asked} asked for, but there are only {len(labels)}; ask for fewer.")
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
    first, second = (_two if classes == 2 else _many)(members, train, validation)
    draw.shuffle(first)
    draw.shuffle(second)
    return first, second


def _two(members: list[array[int]], train: int, validation: int) -> tuple[array[int], array[int]]:
    """Two classes in proportion."""
    # How many of the first n samples drawn are positive; what rounding leaves over is in the second split.
    whole = sum(map(len, members))
    positive = [n * len(members[1]) // whole for n in (train, train + validation)]
    negative = [train - positive[0], train + validation - positive[1]]
    first = members[0][: negative[0]] + members[1][: positive[0]]
    second = members[0][negative[0] : negative[1]] + members[1][positive[0] : positive[1]]
    return first, second


def _many(members: list[array[int]], train: int, validation: int) -> tuple[array[int], array[int]]:
    """Any number of classes in proportion: the n-th of a class comes n-th along its share of the whole."""
    there = [found for found in members if found]  # in the order of their classes, which decides a tie
    along = np.concatenate([(np.arange(len(found)) + 0.5) / len(found) for found in there])
    order = np.argsort(along, kind="stable")[: train + validation]
    drawn = np.concatenate([np.frombuffer(found, dtype=np.int64) for found in there])[order]
    return array("q", drawn[:train].tobytes()), array("q", drawn[train:].tobytes())
