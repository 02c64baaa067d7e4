"""Two splits: every sample once, every class in its proportion."""

from __future__ import annotations

import pytest

from training.data.split import split_by_class
from training.errors import DataError

TWO = [[3, 0, 8, 5, 6], [2, 1, 4]]
THREE = [[8, 7, 9, 0, 6], [2, 4, 5, 1]]


def test_the_splits_hold_every_sample_once_and_both_classes() -> None:
    labels = [number % 2 for number in range(40)]
    train, validation = split_by_class(labels, 25, 15, seed=1)
    assert (len(train), len(validation)) == (25, 15)
    assert {*train, *validation} == set(range(40))
    assert [sum(labels[number] for number in part) for part in (train, validation)] == [12, 8]
    assert train != split_by_class(labels, 25, 15, seed=2)[0]
    assert [labels[number] for number in train] != sorted(labels[number] for number in train)


@pytest.mark.parametrize("sizes", [(50, 50), (97, 3), (40, 30, 20, 9, 1), (3,) * 40])
def test_every_class_is_in_both_splits_in_its_proportion(sizes: tuple[int, ...]) -> None:
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    whole, classes = len(labels), len(sizes)
    for train in (whole // 2, whole - 7):
        first, second = split_by_class(labels, train, whole - train, 5, classes)
        assert sorted(first + second) == list(range(whole))
        for label, size in enumerate(sizes):
            found = sum(labels[number] == label for number in first)
            assert abs(found - train * size / whole) < (1 if classes == 2 else 1.5)


def test_what_cannot_be_split_is_said() -> None:
    with pytest.raises(DataError, match="3 samples to train and 2 to validate were asked for"):
        split_by_class([0, 1, 1, 0], 3, 2, seed=1)
    with pytest.raises(DataError, match="All 4 samples have the label 1; two classes are needed"):
        split_by_class([1, 1, 1, 1], 2, 2, seed=1)


def test_the_draw_is_the_one_that_it_always_was() -> None:
    """The order decides the bytes of a data set, whose name is in records."""
    two = split_by_class([number % 2 for number in range(9)], 5, 3, seed=4)
    assert [list(part) for part in two] == TWO
    three = split_by_class([0, 1, 2, 0, 0, 1, 0, 2, 0, 1], 5, 4, 4, 4)
    assert [list(part) for part in three] == THREE
