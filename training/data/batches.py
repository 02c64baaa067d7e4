"""Which rank takes which samples in each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from training.util.seeds import derive_seed

POOL: Final = 50
"""Batches whose samples are sorted by length together, as in Hugging Face's `group_by_length`.

But at most a quarter of an epoch's: else the same samples would share a batch in every epoch."""


def global_batches(
    samples: int, size: int, *, keep_last: bool, seed: int, epoch: int, lengths: torch.Tensor | None = None
) -> Iterator[torch.Tensor]:
    """The numbers of the samples of each step of an epoch, for all ranks together: int64 [size].

    A permutation decided by seed and epoch alone, cut into batches; the last one may be shorter, and is left
    out unless `keep_last`. No sample is repeated to fill up the last batch, as `DistributedSampler` would.

    With `lengths` (int64 [samples]) the samples of a batch are of similar length: those of some batches
    (`POOL`) are sorted by length, cut into batches again, and all full batches are shuffled. The last, uneven
    one stays as it was drawn, so no length is more likely to be left out than another.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    order = torch.randperm(samples, generator=generator)
    whole = samples - samples % size
    batches = order[:whole].view(samples // size, size)
    if lengths is not None:
        pools = torch.split(batches, min(POOL, max(1, len(batches) // 4)))
        grouped = torch.cat([_sorted(pool.flatten(), lengths).view_as(pool) for pool in pools])
        batches = grouped[torch.randperm(len(batches), generator=generator)]
    yield from batches
    if keep_last and whole < samples:
        yield order[whole:]


def _sorted(chosen: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Samples from the shortest to the longest; equally long ones stay in their order."""
    return chosen[lengths[chosen].argsort(stable=True)]


def rank_share(batch: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """This rank's slice of a global batch: contiguous, sizes differ by one at most; it may be empty."""
    return batch.tensor_split(world_size)[rank]
