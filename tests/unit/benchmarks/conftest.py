"""The data sets of the training job's tests."""

from __future__ import annotations

from tests.unit.training.conftest import datasets, made_up_sentences

__all__ = ["datasets", "made_up_sentences"]
