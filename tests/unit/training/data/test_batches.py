"""Which rank takes which reviews in each step."""

from __future__ import annotations

from itertools import chain

import pytest
import torch

from training.data.batches import global_batches, rank_share


def epoch(
    reviews: int, size: int, *, keep_last: bool = True, seed: int = 1, number: int = 1
) -> list[list[int]]:
    batches = global_batches(reviews, size, keep_last=keep_last, seed=seed, epoch=number)
    return [batch.tolist() for batch in batches]


def test_an_epoch_takes_each_review_once() -> None:
    batches = epoch(103, 10)
    assert sorted(chain.from_iterable(batches)) == list(range(103))
    assert [len(batch) for batch in batches] == [10] * 10 + [3]
    assert epoch(103, 10, keep_last=False) == batches[:-1]


def test_seed_and_epoch_alone_decide_the_order() -> None:
    state = torch.get_rng_state()
    first = epoch(50, 8)
    torch.rand(7)
    assert epoch(50, 8) == first
    assert epoch(50, 8, number=2) != first != epoch(50, 8, seed=2)
    torch.set_rng_state(state)


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 2, 6, 7, 64])
def test_the_ranks_share_a_batch_without_rest_or_overlap(world_size: int, size: int) -> None:
    batch = torch.randperm(size)
    shares = [rank_share(batch, rank, world_size) for rank in range(world_size)]
    assert torch.cat(shares).tolist() == batch.tolist()
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1
