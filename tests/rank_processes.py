"""Ranks that tests start as processes of their own: what they meet by, and waiting for their end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess


def rank_variables(rank: int, world: int, port: int) -> dict[str, str]:
    """The environment of a rank on this machine; rank 0 listens on `port`."""
    numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    return numbers | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def exit_codes(ranks: Sequence[BaseProcess], within: float) -> list[int | None]:
    """Wait for every rank, at most `within` seconds; None for those that had to be killed then."""
    deadline = time.monotonic() + within
    for rank in ranks:
        rank.join(max(0.0, deadline - time.monotonic()))
    late = [rank for rank in ranks if rank.is_alive()]
    for rank in late:
        rank.kill()
        rank.join()
    return [None if rank in late else rank.exitcode for rank in ranks]
