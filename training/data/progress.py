"""A line on standard error for what takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

LINE_EVERY: Final = 10.0  # s
REWRITTEN_EVERY: Final = 0.5  # s, on a terminal

Item = TypeVar("Item")


def shown(
    items: Iterable[Item], what: str, total: int | None = None, size: Callable[[Item], int] = lambda _: 1
) -> Iterator[Item]:
    """The items, and how many have been taken so far: `tokenising train: 51,200 of 100,000, 4,100/s`.

    On a terminal it is one line, which goes when all are taken; elsewhere a line every ten seconds.

    Args:
        items: whatever is worked on.
        what: is done with them.
        total: of all sizes; None = unknown.
        size: of one item.
    """
    terminal = sys.stderr.isatty()
    every = REWRITTEN_EVERY if terminal else LINE_EVERY
    began = said = time.monotonic()
    done = 0
    of = "" if total is None else f" of {total:,}"
    try:
        for item in items:
            yield item
            done += size(item)
            if (now := time.monotonic()) - said >= every:
                said = now
                line = f"{what}: {done:,}{of}, {done / (now - began):,.0f}/s"
                sys.stderr.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
                sys.stderr.flush()
    finally:
        if terminal and said != began:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
