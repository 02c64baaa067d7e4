"""The data sets of the unit tests, for training on a GPU."""

from __future__ import annotations

from tests.unit.training.conftest import datasets, made_up_sentences

__all__ = ["datasets", "made_up_sentences"]
