"""What each stack's overhead grows with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.fingerprint import TERMS, Fingerprint, Term
from experiments.analysis.step_samples import BATCH
from experiments.analysis.verdicts import sign
from experiments.report.formats import Format, Value
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.util.words import listed

TITLE: Final = "What an overhead grows with"
WORDS: Final[dict[Term, str]] = {
    "once": "once, s",
    "step": "a step, ms",
    "trained": f"{BATCH} samples trained on, ms",
    "evaluated": f"{BATCH} samples evaluated, ms",
}
COST: Final = Format(2, signed=True)


def fingerprint_table(found: Sequence[Fingerprint], baseline: str, doubt: str = "") -> Table:
    """The costs of every stack beyond the baseline's, after a `doubt` about all of it."""
    return Table(
        title=TITLE,
        before=doubt
        + (
            f"What train_s is longer than on {baseline}, shared out by least squares over runs with other "
            "batches, evaluations and lengths, once for each seed: a part once, in each step, and for the "
            "samples that a rank trains on and evaluates. In brackets are 95 % intervals that hold all at "
            "once (Bonferroni)."
        ),
        columns=columns(
            *("stack", "workers", "cells", "seeds"), *(WORDS[term] for term in TERMS), words=("stack",)
        ),
        rows=[_row(each) for each in found],
        after=[remark for each in found for remark in _remarks(each)],
    )


def _row(each: Fingerprint) -> list[Value | str]:
    return [
        stack_text(each.stack, each.settings),
        Value(each.workers),
        run_count(each.cells),
        run_count(next(iter(each.costs.values())).n),
        *(
            Value(cost.mean, COST, low=cost.low, high=cost.high) if cost else Value(None)
            for cost in map(each.costs.get, TERMS)
        ),
    ]


def _remarks(each: Fingerprint) -> list[str]:
    name = stack_text(each.stack, each.settings)
    grows = [WORDS[term].rpartition(",")[0] for term, cost in each.costs.items() if (sign(cost) or 0) > 0]
    said = f"more {listed(grows)}" if grows else "none of these is shown to be above zero"
    remarks = [f"{name}: {said}."]
    if each.confounded:
        words = listed([WORDS[term].rpartition(",")[0] for term in each.confounded])
        remarks.append(f"{name}: these runs can't tell apart, so it is left out: {words}.")
    return remarks
