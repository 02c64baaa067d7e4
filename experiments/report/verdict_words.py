"""What a comparison shows, in words: no more than its runs allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from experiments.analysis.ladders import Step
from experiments.analysis.statistics import MARGIN, Ratio
from experiments.analysis.verdicts import is_small, outcome
from experiments.report.formats import PERCENT, RATIO, Format, number, quantity
from experiments.util.words import counted

MOSTLY: Final = "four times in five"  # POWER
TENFOLD: Final = 9.0  # more by as much: ten times as long
SAME: Final = f"the same within {quantity(MARGIN, PERCENT)}"
SINGLE: Final = "a single pair: no interval, and nothing can be said"


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
    small=f", by less than {quantity(MARGIN, PERCENT)}",
    same=SAME,
    open=f"can't tell: only a difference of {{visible}} or more would have shown {MOSTLY}",
    single=SINGLE,
)
SCREEN: Final = Words(
    longer="slower",
    shorter="faster",
    small="",
    same=SAME,
    open="can't tell (visible: {visible})",
    single="a single pair: nothing can be said",
)


def verdict(ratio: Ratio, words: Words = REPORT) -> str:
    """What may be said of a ratio, and no more."""
    found = outcome(ratio)
    said: str = getattr(words, found)
    if found in ("longer", "shorter") and is_small(ratio):
        said += words.small
    return said if ratio.visible is None else said.format(visible=_visible_text(ratio.visible))


def step_verdict(step: Step) -> str:
    """What may be said of what a ladder's step removes."""
    if step.outcome == "open":
        visible = number(step.seconds.visible, RATIO)
        return f"can't tell: only about {visible} s or more would have shown {MOSTLY}"
    return {"costs": "costs time", "saves": "saves time", "single": SINGLE}[step.outcome]


def corrected_text(p_values: Sequence[float | None]) -> str:
    """For how many comparisons the p values of a table are corrected; single pairs are none."""
    made = sum(p is not None for p in p_values)
    if not made:
        return "There are single pairs only: none is a comparison, and nothing has a p."
    single = len(p_values) - made
    aside = f" ({counted(single, 'single pair')} beside, without a p)" if single else ""
    if made == 1:
        return f"One comparison is made here{aside}, and p needs no correction."
    return f"p is corrected for the {made} comparisons made here{aside}."


def _visible_text(fraction: float) -> str:
    """No more exact than a spread of a few runs lets it be known."""
    if fraction >= TENFOLD:
        return "ten times"
    return f"about {quantity(fraction, Format(1 if fraction < 0.1 else 0, factor=100, unit=' %'))}"
