"""How the learning rate changes over the steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

#: Of the steps after the warm-up: where `step` divides the learning rate by ten (Goyal et al., 2017: after
#: 30, 60 and 80 of 90 epochs).
DROPS: Final = (1 / 3, 2 / 3, 8 / 9)

#: By name, apart from linear: the factor, by the share of the steps after the warm-up that are done.
SHAPES: Final[dict[str, Callable[[float], float]]] = {
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,  # Loshchilov & Hutter, 2017, without restarts
    "constant": lambda _: 1.0,
    "step": lambda done: 0.1 ** sum(done >= drop for drop in DROPS),
}


def learning_rate_factor(step: int, warmup: int, steps: int, schedule: str = "linear") -> float:
    """The factor on the learning rate in step `step` (from 0) of `steps`.

    Linear warm-up over the first `warmup` steps, then as the `schedule` says.
    """
    if step < warmup:
        return step / warmup
    if schedule == "linear":  # Devlin et al., 2018
        return max(0.0, (steps - step) / max(1, steps - warmup))
    return SHAPES[schedule](min(1.0, (step - warmup) / max(1, steps - warmup)))
