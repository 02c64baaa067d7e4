"""Accuracy as scripts compute it, by Hugging Face's library `evaluate`; no other module imports that."""

from __future__ import annotations

from typing import Any

import evaluate
from datasets import Features, Value


class Accuracy(evaluate.Metric):  # type: ignore[misc]  # the library has no types
    """How many samples have the class that is predicted of them.

    `evaluate.load("accuracy")` fetches a script from the hub, which a node without internet can't. The hub's
    script is not loaded here: this class computes the same, and all else is the library's own. Each batch
    goes to an Arrow file in `cache_dir`; in the end that is read into lists, which scikit-learn compares.
    """

    def _info(self) -> Any:
        classes = {name: Value("int32") for name in ("predictions", "references")}  # numbers of classes
        return evaluate.MetricInfo(
            description=(self.__doc__ or "").partition("\n")[0],
            citation="",
            inputs_description="",
            features=Features(classes),
        )

    def _compute(
        self, predictions: list[int], references: list[int], normalize: bool = True
    ) -> dict[str, float]:
        """Their share, or without `normalize` their number."""
        from sklearn.metrics import accuracy_score

        return {"accuracy": float(accuracy_score(references, predictions, normalize=normalize))}
