"""From texts to a trained model: the times of runs that make their own tokens, preparing included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.from_texts import FromTexts
from experiments.analysis.statistics import Estimate
from experiments.report.formats import GROUPED, P_VALUE, TENTHS, Format, Value, number, plain_interval
from experiments.report.names import stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.report.verdict_words import corrected_text, percent_text, verdict
from experiments.util.words import counted

TITLE: Final = "From texts to a trained model"
CONDITION: Final = "tokenizing"  # in_run in every row, so left out
RATIO: Final = Format(3)


def from_texts_table(found: Sequence[FromTexts], baseline: str) -> Table:
    """What each cell takes, piece by piece, and against the baseline."""
    return Table(
        title=TITLE,
        before=(
            "These runs begin with texts. Preparing makes token ids of them, once, by the stack's own means; "
            "training follows. End to end is both, with everything that the stack's command does around "
            "them. Means are ± half a Student's 95 % interval; ratios are geometric means over runs with the "
            "same seed. The interval and p are those of end to end. "
            f"{corrected_text([each.ratio.p for each in found if each.ratio is not None])}"
        ),
        columns=columns(
            "stack",
            "workers",
            "epochs",
            "runs",
            "preparing, s",
            "training, s",
            "end to end, s",
            "pairs",
            f"preparing over {baseline}",
            f"end to end over {baseline}",
            "95 % interval",
            "p (Bonferroni)",
            "verdict",
            words=("stack", "verdict"),
        ),
        rows=[_row(each) for each in found],
        after=[*_remarks(found), *_noise(found, baseline)],
    )


def _row(each: FromTexts) -> list[Value | str]:
    cell, preparing, ratio = each.cell, each.preparing_ratio, each.ratio
    against: list[Value | str] = [Value(None)] * 6
    if ratio is not None:
        against = [
            run_count(ratio.n),
            Value(preparing.ratio if preparing else None, RATIO),
            Value(ratio.ratio, RATIO),
            plain_interval(ratio.low, ratio.high, RATIO),
            Value(ratio.p, P_VALUE),
            verdict(ratio),
        ]
    return [
        stack_text(cell.stack, cell.settings, without=CONDITION),
        Value(cell.workers),
        Value(cell.epochs),
        Value(len(each.records)),
        *(_mean(value) for value in (each.preparing_s, each.training_s, each.end_to_end_s)),
        *against,
    ]


def _mean(value: Estimate) -> Value:
    return Value(value.mean, TENTHS, spread=None if value.high is None else value.high - value.mean)


def _remarks(found: Sequence[FromTexts]) -> list[str]:
    remarks = {
        f"{each.cell.stack}, {counted(each.cell.workers, 'worker')}: "
        f"{number(record.prepared.rows, GROUPED)} samples, by {record.prepared.by}.": None
        for each in found
        for record in each.records
        if record.prepared is not None
    }
    return [*remarks, "In every run the tokens had the same digest as those that were prepared beforehand."]


def _noise(found: Sequence[FromTexts], baseline: str) -> list[str]:
    """How far apart such runs are that differ in nothing; nothing without a comparison."""
    ratios = [each.ratio for each in found if each.ratio is not None]
    if not ratios:
        return []
    if ratios[0].floor is None:
        return [f"How far apart runs of {baseline} from texts are that differ in nothing was not measured."]
    floor = percent_text(ratios[0].floor)
    return [f"By repeated runs of {baseline} (A/A), no difference from end to end below {floor} is claimed."]
