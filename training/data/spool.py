"""Texts that wait in a file until they are drawn: only where each begins is in memory."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

TEXTS: Final = 512  # in a chunk, at most
CHARACTERS: Final = 1 << 20  # in a chunk, at most, unless a single text has more


class Spool:
    """Texts in a file without a name, which goes with this object; eight bytes of memory for each."""

    def __init__(self, folder: Path, texts: Iterable[str] = ()) -> None:
        """A new one, its file in `folder`.

        Raises:
            OSError: the file can't be written.
        """
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 # it lives as long as this object
        self._starts = array("q", [0])  # and where the last one ends
        for text in texts:
            self.append(text)
        self.flush()

    def append(self, text: str) -> None:
        """Add one, which can be read after the next `flush`."""
        self._starts.append(self._starts[-1] + self._file.write(text.encode()))

    def flush(self) -> None:
        """Write out all that was added."""
        self._file.flush()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> str:
        start = self._starts[number]
        content = os.pread(self._file.fileno(), self._starts[number + 1] - start, start)
        return content.decode()


class Drawn:
    """Some texts of a spool, in an order of their own; may be iterated any number of times."""

    def __init__(self, spool: Spool, numbers: array[int]) -> None:
        """Those with these numbers."""
        self.spool, self.numbers = spool, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return (self.spool[number] for number in self.numbers)

    def in_order(self) -> Drawn:
        """The same in the order of the file, which reads it from front to back."""
        return Drawn(self.spool, array("q", np.sort(self.numbers).tobytes()))


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists that a tokenizer can take at once: it needs a hundred bytes for each token."""
    chunk: list[str] = []
    characters = 0
    for text in texts:
        if chunk and (len(chunk) == TEXTS or characters + len(text) > CHARACTERS):
            yield chunk
            chunk, characters = [], 0
        chunk.append(text)
        characters += len(text)
    if chunk:
        yield chunk
