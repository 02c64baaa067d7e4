"""Which rank takes which reviews in each step."""

from __future__ import annotations

from itertools import chain

import pytest
import torch

from training.data.batches import global_batches, rank_share


def epoch(
    reviews: int,
    size: int,
    *,
    keep_last: bool = True,
    seed: int = 1,
    number: int = 1,
    lengths: torch.Tensor | None = None,
) -> list[list[int]]:
    batches = global_batches(reviews, size, keep_last=keep_last, seed=seed, epoch=number, lengths=lengths)
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


def test_batches_grouped_by_length_take_each_review_once_too() -> None:
    lengths = torch.randint(1, 513, (1203,), generator=torch.Generator().manual_seed(0))
    plain, grouped = epoch(1203, 10), epoch(1203, 10, lengths=lengths)
    assert sorted(chain.from_iterable(grouped)) == list(range(1203))
    assert [len(batch) for batch in grouped] == [10] * 120 + [3]
    assert grouped[-1] == plain[-1]  # what is left over is drawn without a look at its length
    assert epoch(1203, 10, keep_last=False, lengths=lengths) == grouped[:-1]
    state = torch.get_rng_state()
    torch.rand(7)
    assert epoch(1203, 10, lengths=lengths) == grouped
    assert epoch(1203, 10, number=2, lengths=lengths) != grouped
    torch.set_rng_state(state)

    def padding(batches: list[list[int]]) -> float:
        """Share of what is computed that is padding, if batches are padded to their longest."""
        computed = sum(len(batch) * int(lengths[batch].max()) for batch in batches[:-1])
        return 1 - sum(int(lengths[batch].sum()) for batch in batches[:-1]) / computed

    assert padding(plain) > 0.4 and padding(grouped) < 0.06
    # Short and long batches take turns, in no order.
    means = torch.stack([lengths[batch].double().mean() for batch in grouped[:-1]])
    following = torch.corrcoef(torch.stack([means[:-1], means[1:]]))[0, 1]
    assert abs(following) < 0.3


def test_the_same_samples_do_not_share_a_batch_in_every_epoch() -> None:
    lengths = torch.arange(40)
    first, second = ({frozenset(each) for each in epoch(40, 4, number=n, lengths=lengths)} for n in (1, 2))
    assert not first & second


def test_equal_lengths_are_shuffled_as_ever() -> None:
    grouped = epoch(400, 8, lengths=torch.ones(400, dtype=torch.int64))
    assert sorted(grouped) == sorted(epoch(400, 8)) and grouped != epoch(400, 8)


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 2, 6, 7, 64])
def test_the_ranks_share_a_batch_without_rest_or_overlap(world_size: int, size: int) -> None:
    batch = torch.randperm(size)
    shares = [rank_share(batch, rank, world_size) for rank in range(world_size)]
    assert torch.cat(shares).tolist() == batch.tolist()
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1
