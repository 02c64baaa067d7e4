"""What a comparison of times shows: no more than its runs allow."""

from __future__ import annotations

from typing import Literal

from experiments.analysis.statistics import MARGIN, Difference, Ratio

Outcome = Literal["longer", "shorter", "same", "open", "noise", "none"]
"""`open`: neither a difference nor equivalence is shown; `noise`: the difference is below the noise floor;
`none`: there is no interval to judge by."""


def outcome(ratio: Ratio) -> Outcome:
    """What a ratio of times shows, by its interval (that of all comparisons, if it is one of several)."""
    if ratio.low is None or ratio.high is None:
        return "none"
    if ratio.low > 1 or ratio.high < 1:
        if ratio.floor is not None and max(ratio.ratio, 1 / ratio.ratio) - 1 <= ratio.floor:
            return "noise"
        return "longer" if ratio.low > 1 else "shorter"
    return "same" if is_small(ratio) else "open"


def is_small(ratio: Ratio, margin: float = MARGIN) -> bool:
    """Whether any difference is shown to be below the margin: the whole interval lies within it."""
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.low > 1 / (1 + margin) and ratio.high < 1 + margin


def sign(difference: Difference) -> Literal[-1, 0, 1] | None:
    """1 or -1 if a difference is shown, by its sign; 0 if none is; None without an interval."""
    if difference.low is None or difference.high is None:
        return None
    if difference.floor is not None and abs(difference.mean) <= difference.floor:
        return 0
    return 1 if difference.low > 0 else -1 if difference.high < 0 else 0
