"""What a comparison of times shows, and how that is said: no more than its runs allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from experiments.statistics import LEVEL, MARGIN, Ratio

ALPHA: Final = 1 - LEVEL
SAME: Final = f"the same within {MARGIN * 100:.0f} %"

Outcome = Literal["longer", "shorter", "same", "open", "single"]


@dataclass(frozen=True)
class Words:
    """How every outcome is said."""

    longer: str
    shorter: str
    small: str  # follows either of these where the difference is surely less than the margin
    same: str
    open: str  # {visible} is the smallest difference that would have shown
    single: str


REPORT: Final = Words(
    longer="takes longer",
    shorter="takes less time",
    small=f", by less than {MARGIN * 100:.0f} %",
    same=SAME,
    open="can't tell: these runs would have shown a difference of {visible}, and no smaller",
    single="a single pair: no interval, and nothing can be said",
)
SCREEN: Final = Words(
    longer="slower",
    shorter="faster",
    small="",
    same=SAME,
    open="can't tell (visible: {visible})",
    single="a single pair: nothing can be said",
)


def outcome(ratio: Ratio, corrected_p: float | None) -> Outcome:
    """What a ratio of times shows: `open` is neither a difference nor sameness, `single` is one pair."""
    if corrected_p is None or ratio.equivalent_p is None:
        return "single"
    if corrected_p < ALPHA:
        return "longer" if ratio.ratio > 1 else "shorter"
    return "same" if ratio.equivalent_p < ALPHA else "open"


def verdict(ratio: Ratio, corrected_p: float | None, words: Words = REPORT) -> str:
    """What may be said of a ratio, and no more."""
    found = outcome(ratio, corrected_p)
    said: str = getattr(words, found)
    if found in ("longer", "shorter") and ratio.equivalent_p is not None and ratio.equivalent_p < ALPHA:
        said += words.small
    return said if ratio.visible is None else said.format(visible=f"{ratio.visible * 100:.1f} %")
