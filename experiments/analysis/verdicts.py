"""What a comparison of times shows: no more than its runs allow."""

from __future__ import annotations

from typing import Final, Literal

from experiments.analysis.statistics import LEVEL, Ratio

ALPHA: Final = 1 - LEVEL

Outcome = Literal["longer", "shorter", "same", "open", "single"]
"""`open`: neither a difference nor equivalence is shown; `single`: there is only one pair."""


def outcome(ratio: Ratio) -> Outcome:
    """What a ratio of times shows, by its p values (corrected if it is one of several)."""
    if ratio.p is None or ratio.equivalent_p is None:
        return "single"
    if ratio.p < ALPHA:
        return "longer" if ratio.ratio > 1 else "shorter"
    return "same" if ratio.equivalent_p < ALPHA else "open"


def is_small(ratio: Ratio) -> bool:
    """Whether any difference is shown to be below the margin of equivalence."""
    return ratio.equivalent_p is not None and ratio.equivalent_p < ALPHA
