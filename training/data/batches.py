"""Which rank takes which samples in each step."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from training.util.seeds import derive_seed


def global_batches(
    samples: int, size: int, *, keep_last: bool, seed: int, epoch: int
) -> Iterator[torch.Tensor]:
    """The numbers of the samples of each step of an epoch, for all ranks together: int64 [size].

    A permutation decided by seed and epoch alone, cut into batches; the last one may be shorter, and is left
    out unless `keep_last`. No sample is repeated to fill up the last batch, as `DistributedSampler` would.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    for batch in torch.split(torch.randperm(samples, generator=generator), size):
        if keep_last or len(batch) == size:
            yield batch


def rank_share(batch: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """This rank's slice of a global batch: contiguous, sizes differ by one at most; it may be empty."""
    return batch.tensor_split(world_size)[rank]
