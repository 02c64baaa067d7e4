"""Metrics that need all predictions of a split together, by their usual names; scikit-learn computes them.

Without predictions it needs nothing but Python, so that a controller can check the names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from training.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

OF_TWO_CLASSES: Final = ("f1", "f1_macro", "auroc", "matthews")
"""`f1` is that of the second class; `auroc` the area under the ROC curve."""

OF_CLASSES: Final = ("f1_macro", "auroc", "matthews")
"""`f1_macro` and `auroc` (each class against the rest) are plain means over the classes."""

OF_LABEL_SETS: Final = ("f1_micro", "f1_macro", "auroc")
"""`f1_micro` counts all labels of all samples together; the others are plain means over the labels."""

OF_NUMBERS: Final = ("pearson", "spearman", "r2")


def names_of_classes(classes: int) -> tuple[str, ...]:
    """Names of the metrics of samples that have one of so many classes."""
    return OF_TWO_CLASSES if classes == 2 else OF_CLASSES


def check_of_classes(names: Sequence[str], classes: int) -> None:
    """Check that there are these metrics, where only the data say how many classes there are.

    Raises:
        DataError: there is none of that name.
    """
    known = names_of_classes(classes)
    if unknown := [name for name in names if name not in known]:
        raise DataError(
            f"conditions.metrics: there is no {unknown[0]} for data of {classes} classes; there are "
            f"{', '.join(known)}."
        )


def of_classes(logits: Array, labels: Array, names: Sequence[str]) -> dict[str, float]:
    """Metrics of samples that have one class each.

    Args:
        logits: [samples, classes].
        labels: numbers of the true classes [samples].
        names: of `names_of_classes`.

    Raises:
        DataError: a metric is not defined for these samples.
    """
    from scipy.special import softmax
    from sklearn import metrics

    classes, found = logits.shape[1], logits.argmax(axis=1)

    def auroc() -> float:
        _check_both(lambda number: labels == number, classes)
        shares = softmax(logits.astype("float64"), axis=1)
        if classes == 2:
            return float(metrics.roc_auc_score(labels, shares[:, 1]))
        return float(metrics.roc_auc_score(labels, shares, multi_class="ovr", labels=range(classes)))

    ways: dict[str, Callable[[], float]] = {
        "f1": lambda: metrics.f1_score(labels, found, zero_division=0),
        "f1_macro": lambda: metrics.f1_score(
            labels, found, labels=range(classes), average="macro", zero_division=0
        ),
        "auroc": auroc,
        "matthews": lambda: metrics.matthews_corrcoef(labels, found),
    }
    return {name: float(ways[name]()) for name in names}


def of_label_sets(logits: Array, labels: Array, names: Sequence[str]) -> dict[str, float]:
    """Metrics of samples that have any number of labels each (errors: `of_classes`).

    Args:
        logits: [samples, labels]; a label is predicted where its logit is positive.
        labels: 1 where the label is true, otherwise 0 [samples, labels].
        names: of `OF_LABEL_SETS`.
    """
    from sklearn import metrics

    found = (logits > 0).astype(int)

    def auroc() -> float:
        _check_both(lambda number: labels[:, number] == 1, labels.shape[1])
        return float(metrics.roc_auc_score(labels, logits.astype("float64"), average="macro"))

    ways: dict[str, Callable[[], float]] = {
        "f1_micro": lambda: metrics.f1_score(labels, found, average="micro", zero_division=0),
        "f1_macro": lambda: metrics.f1_score(labels, found, average="macro", zero_division=0),
        "auroc": auroc,
    }
    return {name: float(ways[name]()) for name in names}


def of_numbers(predicted: Array, true: Array, names: Sequence[str]) -> dict[str, float]:
    """Metrics of samples that have a number each; a correlation with a constant is not a number.

    Args:
        predicted: [samples].
        true: [samples].
        names: of `OF_NUMBERS`.
    """
    from scipy import stats
    from sklearn import metrics

    predicted, true = predicted.astype("float64"), true.astype("float64")
    ways: dict[str, Callable[[], float]] = {
        "pearson": lambda: stats.pearsonr(predicted, true).statistic,
        "spearman": lambda: stats.spearmanr(predicted, true).statistic,
        "r2": lambda: metrics.r2_score(true, predicted),
    }
    return {name: float(ways[name]()) for name in names}


def _check_both(having: Callable[[int], Any], classes: int) -> None:
    for number in range(classes):
        share = having(number).mean()
        if share in (0, 1):
            which = "no sample has" if share == 0 else "all samples have"
            raise DataError(
                f"auroc is not defined here: {which} class {number} (counted from 0); use more samples, "
                "or leave it out of conditions.metrics."
            )
