"""Workers in a matrix before the cluster is known: `workers: all`, and a batch that all ranks share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

ALL: Final = "all"  # under axes, for workers: 1, 2 and so on, up to the inventory's number
GLOBAL_BATCH: Final = "global_batch"  # samples that all ranks together take in a step, whatever their number
MOST: Final = 4096  # workers that a specification allows


def _as_lists(axes: Any) -> Any:
    """The axes as written, with `workers: all` as a list like every other axis."""
    if isinstance(axes, dict) and axes.get("workers") == ALL:
        return {**axes, "workers": [ALL]}
    return axes


Axes = Annotated[dict[str, list[Any]], BeforeValidator(_as_lists)]


def on_workers(axes: dict[str, list[Any]], number: int) -> dict[str, list[Any]]:
    """The axes on a cluster of `number` workers."""
    if axes.get("workers") != [ALL]:
        return axes
    return {**axes, "workers": list(range(1, number + 1))}


def most_workers(named: Iterable[Mapping[str, Any]]) -> int:
    """The largest number of workers in `named` that a run may have; 1 if there is none.

    On a cluster of that size, rows and exclusions meet every combination that they can ever meet.
    """
    numbers = [each.get("workers") for each in named]
    return max((number for number in numbers if isinstance(number, int) and number <= MOST), default=1)


def batch_fault(given: Mapping[str, Any]) -> str | None:
    """The fault of a run's global batch, in one sentence; None if there is none."""
    if GLOBAL_BATCH not in given:
        return None
    batch = given[GLOBAL_BATCH]
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        return f"{GLOBAL_BATCH} must be a whole number of samples above 0, not {batch!r}."
    if "batch_per_worker" in given:
        return f"{GLOBAL_BATCH} decides batch_per_worker; keep one of the two."
    return None


def share_of(batch: int, work: Mapping[str, Any]) -> int:
    """Each rank's share of a global batch, rounded down if need be."""
    # Validation of the specification names values that are not numbers.
    factors = [work.get(name, 1) for name in ("workers", "slots_per_worker")]
    workers, slots = (each if isinstance(each, int) and each > 0 else 1 for each in factors)
    return max(1, batch // (workers * slots))


def why_not_shared(batch: int | None, ranks: int) -> str | None:
    """Why `ranks` ranks can't share a global batch equally, in one sentence; None if they can."""
    if batch is None or batch % ranks == 0:
        return None
    return f"A global batch of {batch} samples can't be shared equally by {ranks} ranks."
