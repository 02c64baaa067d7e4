"""What a step takes on a script's own clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.own_clock import OwnClock
from experiments.analysis.statistics import Difference
from experiments.analysis.verdicts import sign
from experiments.report.formats import Format, Value, interval, number
from experiments.report.names import cells_name, stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.report.verdict_words import MOSTLY, SINGLE, UNSPREAD
from experiments.util.words import listed

TITLE: Final = "What a step takes on the script's own clock"
LEVEL: Final = Format(3)
MORE: Final = Format(3, signed=True)
FEW: Final = 4  # cells that a sentence names one by one


def own_clock_table(found: Sequence[OwnClock], baseline: str, doubt: str = "") -> Table:
    """A row for each cell of another stack than the baseline."""
    metric = found[0].metric if found else ""
    return Table(
        title=TITLE,
        before=doubt
        + (
            f"Milliseconds by the metric {metric}, which the script measured in its own process, around its "
            "steps alone: the start of that process and its imports, which train_s has, are not among them. "
            "Means over the pairs of runs of the same seed; the intervals are Student's and hold for all "
            "rows at once (Bonferroni)."
        ),
        columns=columns(
            *("stack", "workers", "epochs", "pairs", "on the stack, ms", f"on {baseline}, ms"),
            *("more, ms", "95 % interval", "verdict"),
            words=("stack", "verdict"),
        ),
        rows=[
            [
                stack_text(each.cell.stack, each.cell.settings),
                Value(each.cell.workers),
                Value(each.cell.epochs),
                run_count(each.more_ms.n),
                Value(each.own_ms, LEVEL),
                Value(each.baseline_ms, LEVEL),
                Value(each.more_ms.mean, MORE),
                Value(None, MORE, low=each.more_ms.low, high=each.more_ms.high),
                _verdict(each.more_ms),
            ]
            for each in found
        ],
    )


def own_clock_sentences(found: Sequence[OwnClock]) -> list[str]:
    """What each stack takes from a step, cell by cell if these are few; nothing without an interval."""
    sentences = []
    for stack in dict.fromkeys(each.cell.stack for each in found):
        own = [each for each in found if each.cell.stack == stack and each.more_ms.low is not None]
        if not own:
            continue
        cells = [each.cell for each in own]
        said = [
            f"{number(each.more_ms.mean, MORE)} ms ({interval(each.more_ms.low, each.more_ms.high, MORE)}) "
            f"more on {cells_name([each.cell], cells)}"
            for each in own
        ]
        if len(own) > FEW:
            lows, highs = ([getattr(each.more_ms, end) for each in own] for end in ("low", "high"))
            said = [f"{interval(min(lows), max(highs), MORE)} ms more on {stack}"]
        sentences.append(
            f"On the script's own clock a step takes, against {own[0].baseline.stack}, {listed(said)}."
        )
    return sentences


def _verdict(more: Difference) -> str:
    shown = sign(more)
    if shown is None:
        return SINGLE if more.n == 1 else UNSPREAD
    if shown:
        return "takes longer" if shown > 0 else "takes less time"
    if more.floor is not None and (more.low or 0.0) * (more.high or 0.0) > 0:
        return (
            f"within the noise: runs that differ in nothing may be up to {number(more.floor, LEVEL)} ms apart"
        )
    return f"can't tell: only about {number(more.visible, LEVEL)} ms or more would have shown {MOSTLY}"
