"""Splits: every sample once, every class in its proportion."""

from __future__ import annotations

import pytest

from training.data.split import split_at_random, split_by_class
from training.errors import DataError

TWO = [[3, 0, 8, 5, 6], [2, 1, 4]]
THREE = [[8, 7, 9, 0, 6], [2, 4, 5, 1]]


def test_the_splits_hold_every_sample_once_and_both_classes() -> None:
    labels = [number % 2 for number in range(40)]
    train, validation = split_by_class(labels, {"train": 25, "validation": 15}, seed=1).values()
    assert (len(train), len(validation)) == (25, 15)
    assert {*train, *validation} == set(range(40))
    assert [sum(labels[number] for number in part) for part in (train, validation)] == [12, 8]
    assert train != split_by_class(labels, {"train": 25, "validation": 15}, seed=2)["train"]
    assert [labels[number] for number in train] != sorted(labels[number] for number in train)


@pytest.mark.parametrize("sizes", [(50, 50), (97, 3), (40, 30, 20, 9, 1), (3,) * 40])
def test_every_class_is_in_every_split_in_its_proportion(sizes: tuple[int, ...]) -> None:
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    whole, classes = len(labels), len(sizes)
    for train in (whole // 2, whole - 7):
        wanted = {"train": train, "validation": (whole - train) // 2}
        wanted["test"] = whole - sum(wanted.values())
        found = split_by_class(labels, wanted, 5, classes)
        assert sorted(number for split in found.values() for number in split) == list(range(whole))
        assert {name: len(split) for name, split in found.items()} == wanted
        for label, size in enumerate(sizes):
            of_it = sum(labels[number] == label for number in found["train"])
            assert abs(of_it - train * size / whole) < (1 if classes == 2 else 1.5)


def test_samples_without_classes_are_drawn_at_random() -> None:
    found = split_at_random(10, {"train": 5, "validation": 2, "test": 2}, seed=1)
    assert [len(split) for split in found.values()] == [5, 2, 2]
    assert len({number for split in found.values() for number in split}) == 9
    assert found == split_at_random(10, {"train": 5, "validation": 2, "test": 2}, seed=1)
    assert found != split_at_random(10, {"train": 5, "validation": 2, "test": 2}, seed=2)
    with pytest.raises(DataError, match=r"\(8 for train and 3 for test\) than the 10 that there are"):
        split_at_random(10, {"train": 8, "test": 3}, seed=1)


def test_what_cannot_be_split_is_said() -> None:
    with pytest.raises(DataError, match=r"\(3 for train and 2 for validation\) than the 4 that there are"):
        split_by_class([0, 1, 1, 0], {"train": 3, "validation": 2}, seed=1)
    with pytest.raises(DataError, match="All 4 samples have the label 1; two classes are needed"):
        split_by_class([1, 1, 1, 1], {"train": 2, "validation": 2}, seed=1)


def test_the_draw_is_the_one_that_it_always_was() -> None:
    """The order decides the bytes of a data set, whose name is in records."""
    two = split_by_class([number % 2 for number in range(9)], {"train": 5, "validation": 3}, seed=4)
    assert [list(part) for part in two.values()] == TWO
    sizes = {"train": 5, "validation": 4}
    three = split_by_class([0, 1, 2, 0, 0, 1, 0, 2, 0, 1], sizes, 4, 4)
    assert [list(part) for part in three.values()] == THREE
