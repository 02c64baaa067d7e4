"""What a matrix says of workers before a cluster is known: all there are, and a batch that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

ALL: Final = "all"  # under axes, for workers: 1, 2 and so on, up to as many as the inventory has
GLOBAL_BATCH: Final = "global_batch"  # reviews that all ranks together take in a step, whatever their number
MOST: Final = 4096  # workers of a run, by its specification


def _as_lists(axes: Any) -> Any:
    """The axes as a person wrote them, `workers: all` made a list like every other axis."""
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
    """The largest number of workers that stands in `named`, as far as a run may have so many; 1 if none does.

    On a cluster of so many, rows and exclusions meet every combination that they can ever meet.
    """
    numbers = [each.get("workers") for each in named]
    return max((number for number in numbers if isinstance(number, int) and number <= MOST), default=1)


def batch_fault(given: Mapping[str, Any]) -> str | None:
    """What is wrong with the global batch of a run, in one sentence; None if nothing is."""
    if GLOBAL_BATCH not in given:
        return None
    batch = given[GLOBAL_BATCH]
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        return f"{GLOBAL_BATCH} is a whole number of reviews above 0, not {batch!r}."
    if "batch_per_worker" in given:
        return f"{GLOBAL_BATCH} decides batch_per_worker; keep one of the two."
    return None


def share_of(batch: int, work: Mapping[str, Any]) -> int:
    """Each rank's share of a global batch, rounded down if need be."""
    # What is no number is named when the specification is validated.
    factors = [work.get(name, 1) for name in ("workers", "slots_per_worker")]
    workers, slots = (each if isinstance(each, int) and each > 0 else 1 for each in factors)
    return max(1, batch // (workers * slots))


def why_not_shared(batch: int | None, ranks: int) -> str | None:
    """Why so many ranks can't share a global batch, in one sentence; None if they can."""
    if batch is None or batch % ranks == 0:
        return None
    return f"A global batch of {batch} reviews can't be shared equally by {ranks} ranks."
