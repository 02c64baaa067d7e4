"""What runs computed with whose last bits can't be compared, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from experiments.analysis.figures import Apart
from experiments.records.record import Arithmetic
from experiments.util.words import counted, listed

NOT_KNOWN: Final = "an unknown processor"
ALIKE: Final = "bits: portable makes processors alike"


def together(found: Iterable[Apart]) -> Apart:
    """What each side computed with in several works or cells, each once."""
    sides: Apart = {}
    for apart in found:
        for side, computed in apart.items():
            each = sides.setdefault(side, [])
            each += [one for one in computed if one not in each]
    return sides


def apart_text(apart: Apart) -> str:
    """`1 thread (A) and 2 threads (B); Intel Xeon (A) and AMD EPYC (B)`: what sides differ in, by name."""
    asked: list[Callable[[Arithmetic], str]] = [_threads, _device, _bits, _libraries, _compiled, _processors]
    parts = []
    for text in asked:
        said = {side: list(dict.fromkeys(text(each) for each in found)) for side, found in apart.items()}
        if len({each for texts in said.values() for each in texts}) > 1:
            parts.append(listed([f"{listed(texts, 'or')} ({side})" for side, texts in said.items()]))
    return "; ".join(parts)


def on_other_processors(apart: Apart) -> bool:
    """Whether it is processors, as they choose kernels themselves, that are not the same."""
    return len({each.processors for found in apart.values() for each in found if each.processors}) > 1


def _threads(each: Arithmetic) -> str:
    return " then ".join(counted(threads, "thread") for threads in each.threads) or "unknown threads"


def _device(each: Arithmetic) -> str:
    return f"device {each.device}"


def _bits(each: Arithmetic) -> str:
    return f"bits {each.bits}"


def _libraries(each: Arithmetic) -> str:
    return f"{each.libraries} libraries"


def _compiled(each: Arithmetic) -> str:
    return f"compile {each.compiled}" if each.compiled else "not compiled"


def _processors(each: Arithmetic) -> str:
    """The processors of its ranks, in their order where they are not all the same."""
    names = [name or NOT_KNOWN for name in each.processors]
    return " then ".join(names if len(set(names)) > 1 else names[:1]) or "portable kernels"
