"""What a comparison of times shows, and how that is said: no more than its runs allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from experiments.analysis.statistics import LEVEL, MARGIN, Ratio

ALPHA: Final = 1 - LEVEL
MOSTLY: Final = "four times in five"  # POWER
TENFOLD: Final = 9.0  # more by as much: ten times as long
SAME: Final = f"the same within {MARGIN * 100:.0f} %"

Outcome = Literal["longer", "shorter", "same", "open", "single"]


@dataclass(frozen=True)
class Words:
    """How every outcome is said."""

    longer: str
    shorter: str
    small: str  # follows either of these where the difference is surely less than the margin
    same: str
    open: str  # {visible} is the smallest difference that would have shown four times in five
    single: str


REPORT: Final = Words(
    longer="takes longer",
    shorter="takes less time",
    small=f", by less than {MARGIN * 100:.0f} %",
    same=SAME,
    open=f"can't tell: only a difference of {{visible}} or more would have shown {MOSTLY}",
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
    return said if ratio.visible is None else said.format(visible=_visible_text(ratio.visible))


def _visible_text(fraction: float) -> str:
    """No more exact than a spread of a few runs lets it be known."""
    if fraction >= TENFOLD:
        return "ten times"
    return f"about {fraction * 100:.{1 if fraction < 0.1 else 0}f} %"
