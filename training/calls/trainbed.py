"""Three calls for a script that trainbed runs: `metrics`, `phase` and `digest`.

Each may be left out. Call them on every rank. This module is there only where trainbed runs the script.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_FILE: Final = Path(os.environ["TRAINBED_EVENTS"])
_PHASES: Final = os.environ["TRAINBED_PHASES"].split(",")
_WRITE_EVERY: Final = 1.0  # s

_seconds: dict[str, float] = {}
_current: tuple[str, float] | None = None
_written = 0.0


def metrics(epoch: int, **values: float) -> None:
    """Report an epoch's figures, in one call or in several.

    Args:
        epoch: from 1.
        values: `train_loss`, and metrics of the validation split (`accuracy`) or the test split
            (`test_accuracy`) by their usual names.

    Raises:
        ValueError: there is no such epoch.
    """
    if int(epoch) < 1:
        raise ValueError(f"There is no epoch {epoch}: they count from 1.")
    figures = {
        name if name.startswith(("train_loss", "validation_", "test_")) else f"validation_{name}": float(
            value
        )
        for name, value in values.items()
    }
    _write("epoch", {"epoch": int(epoch)} | figures)


def phase(name: str) -> None:
    """Say what follows: data, forward, backward, exposed_sync, optimiser, evaluation, checkpoint or other.

    Raises:
        ValueError: it is none of these.
    """
    global _current, _written
    if name not in _PHASES:
        raise ValueError(f"There is no phase {name!r}: use one of {', '.join(_PHASES)}.")
    now = time.perf_counter()
    _end_phase(now)
    _current = (name, now)
    if now - _written >= _WRITE_EVERY:
        _written = now
        _write("phases", {"seconds": _seconds})


def digest(state: Mapping[str, Any]) -> str:
    """Report the trained weights, a `state_dict` without prefixes of wrappers; returns their SHA-256.

    It proves that runs ended with equal weights.
    """
    from trainbed_weights import weights_digest  # type: ignore[import-not-found]  # put beside this file

    found: str = weights_digest(state)
    _write("digest", {"weights_digest": found, "parameters": sum(each.numel() for each in state.values())})
    return found


def _end_phase(now: float) -> None:
    if _current is not None:
        name, since = _current
        _seconds[name] = _seconds.get(name, 0.0) + now - since


def _write(event: str, figures: dict[str, Any]) -> None:
    with _FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": event} | figures) + "\n")


@atexit.register
def _at_end() -> None:
    global _current
    if _current is not None:
        _end_phase(time.perf_counter())
        _current = None
        _write("phases", {"seconds": _seconds})
