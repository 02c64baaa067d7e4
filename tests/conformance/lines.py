"""Which line of a workload's code gives something else when it is called a second time."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Event:
    """A line that is about to be run, or the end of a function, and what its variables are then."""

    file: str
    line: int
    variables: dict[str, str]  # fingerprints, by name
    generators: str  # fingerprint of the state of the generators that a process has


def fingerprint(value: Any, depth: int = 3) -> str | None:
    """Equal for equal values; None for values of which nothing is known."""
    if isinstance(value, torch.Tensor):
        return _hash(str((value.dtype, tuple(value.shape))).encode(), value.detach().cpu().numpy().tobytes())
    if isinstance(value, np.ndarray):
        return _hash(str((value.dtype, value.shape)).encode(), np.ascontiguousarray(value).tobytes())
    if isinstance(value, str | bytes | int | float | bool | np.generic) or value is None:
        return _hash(repr(value).encode())
    if depth and isinstance(value, list | tuple):
        return _hash(*((fingerprint(each, depth - 1) or "").encode() for each in value))
    if depth and isinstance(value, dict):
        return _hash(*((f"{key}{fingerprint(each, depth - 1)}").encode() for key, each in value.items()))
    return None


def difference(call: Callable[[], Any], again: Callable[[], Any], folder: Path) -> str | None:
    """Where `again` begins to do something else than `call`, as `workload.py, line 12: code`.

    None if both give the same result, and neither draws from a generator of the process.

    Args:
        call: calls functions of a workload.
        again: should do the same.
        folder: the workload's code.
    """
    one, first = _trace(call, folder)
    two, second = _trace(again, folder)
    for events in (one, two):
        for before, after in itertools.pairwise(events):
            if before.generators != after.generators:
                return _told(before)
    for at, (mine, other) in enumerate(zip(one, two, strict=False)):
        same = (mine.file, mine.line) == (other.file, other.line)
        if not same or mine.variables != other.variables:
            return _told(one[max(0, at - 1)])
    if fingerprint(first) == fingerprint(second) and len(one) == len(two):
        return None
    return _told(one[-1]) if one else "an unknown line"


def generators() -> str:
    """Fingerprint of the state of Python's, NumPy's and torch's own generators."""
    import random

    states = (random.getstate(), np.random.get_state(), torch.get_rng_state().numpy().tobytes())
    return _hash(*(pickle.dumps(state) for state in states))


def _trace(call: Callable[[], Any], folder: Path) -> tuple[list[Event], Any]:
    events: list[Event] = []

    def note(frame: FrameType, event: str, _: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(folder):
            return None
        if event in ("line", "return"):
            known = {name: fingerprint(value) for name, value in frame.f_locals.items()}
            variables = {name: value for name, value in known.items() if value is not None}
            events.append(Event(str(path), frame.f_lineno, variables, generators()))
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return events, result


def _told(event: Event) -> str:
    path = Path(event.file)
    code = path.read_text(encoding="utf-8").splitlines()[event.line - 1].strip()
    return f"{path.name}, line {event.line}: {code}"


def _hash(*parts: bytes) -> str:
    sha = hashlib.sha256()
    for part in parts:
        sha.update(f"{len(part)} ".encode())
        sha.update(part)
    return sha.hexdigest()
