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
TENFOLD: Final = 9.0  # 900 % more: ten times as long
SAME: Final = f"the same within {quantity(MARGIN, PERCENT)}"
SINGLE: Final = "a single pair: no interval, and nothing can be said"


@dataclass(frozen=True)
class Words:
    """The wording of every outcome."""

    longer: str
    shorter: str
    small: str  # follows either of these if the difference is shown to be below the margin
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
    """What may be said about a ratio, and no more."""
    found = outcome(ratio)
    said: str = getattr(words, found)
    if found in ("longer", "shorter") and is_small(ratio):
        said += words.small
    return said if ratio.visible is None else said.format(visible=_visible_text(ratio.visible))


def step_verdict(step: Step) -> str:
    """What may be said about a ladder's step, and no more."""
    if step.outcome == "open":
        visible = number(step.seconds.visible, RATIO)
        return f"can't tell: only about {visible} s or more would have shown {MOSTLY}"
    return {"costs": "costs time", "saves": "saves time", "single": SINGLE}[step.outcome]


def corrected_text(p_values: Sequence[float | None]) -> str:
    """How many comparisons a table's p values are corrected for; single pairs don't count."""
    made = sum(p is not None for p in p_values)
    if not made:
        return "There are only single pairs, which are not compared and have no p."
    single = len(p_values) - made
    aside = f" (besides {counted(single, 'single pair')} without a p)" if single else ""
    if made == 1:
        return f"One comparison is made here{aside}, so p needs no correction."
    return f"p is corrected for the {made} comparisons made here{aside}."


def _visible_text(fraction: float) -> str:
    """No more exact than the spread of a few runs allows."""
    if fraction >= TENFOLD:
        return "ten times"
    return f"about {quantity(fraction, Format(1 if fraction < 0.1 else 0, factor=100, unit=' %'))}"
