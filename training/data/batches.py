"""Which rank takes which reviews in each step, and these reviews as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from training.data.dataset import Reviews
from training.util.seeds import derive_seed


@dataclass(frozen=True)
class Batch:
    """Reviews as the model takes them, on its device."""

    input_ids: torch.Tensor  # int64 [reviews, max_length]
    attention_mask: torch.Tensor  # int64 [reviews, max_length]; 1 = token, 0 = padding
    labels: torch.Tensor  # int64 [reviews]; 1 = positive


def load_batch(reviews: Reviews, chosen: torch.Tensor, device: torch.device) -> Batch:
    """The `reviews` with the numbers `chosen` (int64 [reviews]), copied from the file to `device`."""
    rows = chosen.numpy()
    columns = (torch.from_numpy(column) for column in (*reviews.tokens(rows), reviews.labels[rows]))
    return Batch(*(column.to(device, torch.int64) for column in columns))


def global_batches(
    reviews: int, size: int, *, keep_last: bool, seed: int, epoch: int
) -> Iterator[torch.Tensor]:
    """The numbers of the reviews of each step of an epoch, for all ranks together: int64 [size].

    A permutation decided by seed and epoch alone, cut into batches; the last one may be shorter, and is left
    out unless `keep_last`. No review is repeated to fill up the last batch, as `DistributedSampler` would.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    for batch in torch.split(torch.randperm(reviews, generator=generator), size):
        if keep_last or len(batch) == size:
            yield batch


def rank_share(batch: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """This rank's slice of a global batch: contiguous, sizes differ by one at most; it may be empty."""
    return batch.tensor_split(world_size)[rank]
