"""How the learning rate changes over the steps."""

from __future__ import annotations


def learning_rate_factor(step: int, warmup: int, steps: int) -> float:
    """The factor on the learning rate in step `step` (from 0) of `steps`.

    Linear warm-up over the first `warmup` steps, then linear decay to zero (as in Devlin et al., 2018).
    """
    if step < warmup:
        return step / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))
