"""Seeds of a matrix: those whose runs start together, as users of one cluster, and those of warm-ups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

WARM_UP_SEEDS: Final = 1_000_000  # added to a block's seed for its warm-ups, so that no counted run has it


def seed_faults(
    together: Sequence[Sequence[int]], combinations: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, str]]:
    """The faults of `together`, the seeds whose runs start together: index and sentence."""
    for at, seeds in enumerate(together):
        before = [seed for other in together[:at] for seed in other]
        double = next((seed for seed in seeds if seed in before or list(seeds).count(seed) > 1), None)
        cells = [_cells(combinations, seed) for seed in seeds]
        if len(seeds) < 2:
            yield at, "runs that start together need different seeds; name at least two seeds."
        elif double is not None:
            yield at, f"the seed {double} is listed twice; each run is made once."
        elif not all(cells):
            lacking = next(seed for seed, found in zip(seeds, cells, strict=True) if not found)
            yield at, f"no run of the matrix has the seed {lacking}; add it to the axes or rows."
        elif any(found != cells[0] for found in cells):
            yield (
                at,
                "runs that start together differ only in their seed, but these seeds do not have the same "
                "runs; give them the same axes and rows.",
            )


def _cells(combinations: Sequence[Mapping[str, Any]], seed: int) -> set[tuple[tuple[str, str], ...]]:
    return {
        tuple((name, repr(value)) for name, value in each.items() if name != "seed")
        for each in combinations
        if each["seed"] == seed
    }
