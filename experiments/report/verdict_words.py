"""What a comparison shows, in words: no more than its runs allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from experiments.analysis.ladders import Step
from experiments.analysis.statistics import MARGIN, Difference, Ratio
from experiments.analysis.verdicts import is_small, outcome, sign
from experiments.report.formats import PERCENT, RATIO, Format, interval, number, quantity

MOSTLY: Final = "four times in five"  # POWER
TENFOLD: Final = 9.0  # 900 % more: ten times as long
SAME: Final = f"the same within {quantity(MARGIN, PERCENT)}"
SINGLE: Final = "a single pair: no interval, and nothing can be said"
UNSPREAD: Final = "pairs without any spread: no interval, and nothing can be said"


@dataclass(frozen=True)
class Words:
    """The wording of every outcome."""

    longer: str
    shorter: str
    small: str  # follows either of these if the difference is shown to be below the margin
    same: str
    open: (
        str  # {visible} is the smallest difference that would have shown four times in five; {ends} its range
    )
    noise: str  # {floor} is the noise floor
    single: str
    unspread: str  # several pairs without an interval


REPORT: Final = Words(
    longer="takes longer",
    shorter="takes less time",
    small=f", by less than {quantity(MARGIN, PERCENT)}",
    same=SAME,
    open=f"can't tell: only a difference of {{visible}}{{ends}} or more would have shown {MOSTLY}",
    noise="within the noise: runs that differ in nothing may be up to {floor} apart",
    single=SINGLE,
    unspread=UNSPREAD,
)
SCREEN: Final = Words(
    longer="slower",
    shorter="faster",
    small="",
    same=SAME,
    open="can't tell (visible: {visible})",
    noise="within the noise ({floor})",
    single="a single pair: nothing can be said",
    unspread="pairs without any spread: nothing can be said",
)


def verdict(ratio: Ratio, words: Words = REPORT) -> str:
    """What may be said about a ratio, and no more."""
    found = outcome(ratio)
    if found == "none":
        return words.single if ratio.n == 1 else words.unspread
    said: str = getattr(words, found)
    if found in ("longer", "shorter") and is_small(ratio):
        said += words.small
    ends = ratio.visible_ends
    return said.format(
        visible=percent_text(ratio.visible),
        ends=f" ({_percent(ends[0])} to {_percent(ends[1])})" if ends and ends[0] < TENFOLD else "",
        floor=percent_text(ratio.floor),
    )


def step_verdict(step: Step) -> str:
    """What may be said about a ladder's step, and no more."""
    return seconds_verdict(step.seconds, "costs time", "saves time")


def seconds_verdict(
    seconds: Difference | None, longer: str = REPORT.longer, shorter: str = REPORT.shorter
) -> str:
    """What may be said about a difference in seconds, and no more; "" without one."""
    if seconds is None:
        return ""
    shown = sign(seconds)
    if shown is None:
        return SINGLE if seconds.n == 1 else UNSPREAD
    if shown:
        return longer if shown > 0 else shorter
    if sign(replace(seconds, floor=None)):
        floor = number(seconds.floor, RATIO)
        return f"within the noise: runs that differ in nothing may be up to {floor} s apart"
    low, high = seconds.visible_ends or (None, None)
    visible = f"{number(seconds.visible, RATIO)} s ({interval(low, high, RATIO)})"
    return f"can't tell: only about {visible} or more would have shown {MOSTLY}"


def corrected_text(p_values: Sequence[float | None]) -> str:
    """How many comparisons a table's intervals and p hold for; those without a p don't count."""
    made = sum(p is not None for p in p_values)
    without = len(p_values) - made
    if not made:
        return "There are only single pairs, or pairs without any spread: none has an interval or a p."
    aside = f" (besides {without} without an interval)" if without else ""
    if made == 1:
        return f"One comparison is made here{aside}, so nothing needs a correction."
    return (
        f"The intervals hold for all {made} comparisons made here at once, and p is corrected alike{aside}."
    )


def percent_text(fraction: float | None) -> str:
    """No more exact than the spread of a few runs allows; "" for None."""
    if fraction is None:
        return ""
    return "ten times" if fraction >= TENFOLD else f"about {_percent(fraction)}"


def _percent(fraction: float) -> str:
    if fraction >= TENFOLD:
        return "ten times"
    digits = 0 if fraction >= 0.1 else 1 if fraction >= 0.01 else 2
    return quantity(fraction, Format(digits, factor=100, unit=" %"))
