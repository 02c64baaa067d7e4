"""Seeds: one for each purpose."""

from __future__ import annotations

from training.util.seeds import derive_seed


def test_seeds_for_different_purposes_differ() -> None:
    seeds = {derive_seed(seed, "order", epoch) for seed in (1, 2) for epoch in (1, 12)}
    seeds |= {derive_seed(1, "model"), derive_seed(1, "order", 1)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)
