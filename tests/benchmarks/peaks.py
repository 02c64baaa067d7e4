"""What one core of this machine can do: matrix products, and moving memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import torch

from training.errors import DataError

SQUARE: Final = 2048  # rows and columns of a large product
CACHES: Final = 4  # an array is so many times the largest cache, as STREAM asks
LEAST_ARRAY: Final = 256 << 20  # bytes
FLOAT: Final = 4  # bytes

Product = tuple[int, int, int]
"""Rows, inner length and columns of a matrix product."""


@dataclass(frozen=True)
class Peak:
    """The fastest of some matrix products."""

    product: Product
    flop_per_s: float


def matrix_peak(products: Iterable[Product], dtype: torch.dtype, seconds: float = 1.0) -> Peak:
    """The fastest of some matrix products, each repeated for `seconds`; its best repetition counts."""
    found = []
    for rows, inner, columns in products:
        left, right = torch.rand(rows, inner).to(dtype), torch.rand(inner, columns).to(dtype)
        out = torch.empty(rows, columns, dtype=dtype)
        best = best_time(lambda a=left, b=right, to=out: torch.mm(a, b, out=to), seconds)  # type: ignore[misc]
        found.append(Peak((rows, inner, columns), 2 * rows * inner * columns / best))
    return max(found, key=lambda each: each.flop_per_s)


def products_of(tokens: int, hidden: int, intermediate: int) -> list[Product]:
    """The products of an encoder's layer over so many tokens, forward and backward, and a large square."""
    pairs = [(hidden, hidden), (hidden, intermediate), (intermediate, hidden)]
    forward = [(tokens, *pair) for pair in pairs]
    of_weights = [(into, tokens, out) for into, out in pairs]
    return [*forward, *of_weights, (SQUARE, SQUARE, SQUARE)]


def largest_cache() -> int:
    """Bytes of this processor's largest cache, as the kernel says.

    Raises:
        DataError: it does not say.
    """
    units = {"K": 1 << 10, "M": 1 << 20}
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes = [path.read_text(encoding="ascii").strip() for path in folder.glob("index*/size")]
    if not sizes:
        raise DataError(f"{folder} does not say how large the caches are; give --array-mb.")
    return max(int(size[:-1]) * units[size[-1]] for size in sizes)


def array_bytes() -> int:
    """Bytes of an array that is far larger than all caches.

    Raises:
        DataError: the kernel does not say how large these are.
    """
    return max(LEAST_ARRAY, CACHES * largest_cache())


def bandwidth(size: int, seconds: float = 3.0) -> dict[str, float]:
    """Bytes that a core reads and writes in a second, by kernel: copy (a = b) and triad (a = b + s c).

    As in STREAM, a cache line that is read only because it will be written counts once.

    Args:
        size: bytes of each of the three arrays.
        seconds: how long each kernel is repeated; its best repetition counts.

    Raises:
        DataError: there is no room for the arrays.
    """
    if 3 * size > (free := psutil.virtual_memory().available):
        raise DataError(
            f"Three arrays of {size >> 20} MiB don't fit into the {free >> 20} MiB of free memory; free "
            "some, or give a smaller --array-mb."
        )
    to, first, second = (torch.ones(size // FLOAT) for _ in range(3))
    copy = best_time(lambda: to.copy_(first), seconds)
    triad = best_time(lambda: torch.add(first, second, alpha=3.0, out=to), seconds)
    moved = to.nbytes
    return {"copy": 2 * moved / copy, "triad": 3 * moved / triad}


def best_time(do: Callable[[], object], seconds: float) -> float:
    """The shortest time in s of a call that is repeated for `seconds`, at least twice."""
    do()
    until, best = time.perf_counter() + seconds, float("inf")
    while True:
        began = time.perf_counter()
        do()
        ended = time.perf_counter()
        best = min(best, ended - began)
        if ended > until:
            return best


def on_one_core() -> int:
    """Bind this process to one core and torch to one thread; returns the number of the core."""
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    return core
