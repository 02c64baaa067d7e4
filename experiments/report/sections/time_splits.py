"""What training costs once, and what it costs per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.comparisons import TimeSplit
from experiments.analysis.statistics import Split
from experiments.analysis.step_samples import BATCH
from experiments.report.formats import TENTHS, Format, Value
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.sections.stack_comparisons import step_value
from experiments.report.tables import Table, columns

TITLE: Final = "Fixed and per step"
MILLISECONDS: Final = Format(2, factor=1000)


def time_splits_table(found: Sequence[TimeSplit], baseline: str) -> Table:
    """Fixed part and part per step."""
    return Table(
        title=TITLE,
        before=(
            "A line through train_s at different lengths gives what training costs once (without the stack's "
            "start: see Where the time goes) and what it costs per step, with evaluations spread over the "
            "steps. There is one line for each seed that has every length, and their mean is shown, ± half a "
            "95 % interval. With fewer than two such seeds it is one line through all runs, without an "
            f"interval. Ms more than {baseline}'s: by seeds that have every length on both, with intervals "
            "that hold all at once (Bonferroni). The dissertation's line goes through a mean of five runs "
            f"and a single run; each of its ranks evaluates {BATCH} samples for the {BATCH} of a step."
        ),
        columns=columns(
            "stack",
            "workers",
            "runs",
            "fixed, s",
            "per step, ms",
            f"ms more than {baseline}'s",
            "dissertation: fixed, s",
            "dissertation: per step, ms",
            words=("stack",),
        ),
        rows=[
            [
                stack_text(each.stack, each.settings),
                Value(each.workers),
                run_count(each.here.n),
                *_parts(each.here),
                step_value(each.more_a_step),
                *_parts(each.dissertation),
            ]
            for each in found
        ],
    )


def _parts(found: Split | None) -> list[Value]:
    if found is None:
        return [Value(None), Value(None)]
    return [
        Value(found.fixed_s, TENTHS, spread=found.fixed_half),
        Value(found.step_s, MILLISECONDS, spread=found.step_half),
    ]
