"""The effect of a setting, against the first value of its axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.settings import SettingComparison
from experiments.report.formats import P_VALUE, Format, Value, plain_interval
from experiments.report.names import setting_text, value_text
from experiments.report.sections.records import run_count
from experiments.report.sections.stack_comparisons import seconds_value, step_value
from experiments.report.tables import Table, columns
from experiments.report.verdict_words import corrected_text, seconds_verdict, verdict

OF_BLOCKS: Final = ("link_rate", "pinning", "device")  # runs that differ in these are in different blocks
RATIO: Final = Format(3)
SEVERAL: Final = (
    "Its cells are too few to tell apart what each setting does, so those that change several are "
    "compared with the first values, too. "
)


def settings_table(found: Sequence[SettingComparison]) -> Table:
    """The settings against one another."""
    words = ("setting", "value", "against", "where", "verdict", "verdict, outside")
    return Table(
        title="What the settings change",
        before=(
            "Pairs of runs with the same seed that differ in one setting only: each value against the "
            f"setting's first value in the matrix. {SEVERAL if any(map(_of_several, found)) else ''}"
            f"{corrected_text([each.ratio.p for each in found])} "
            "Ms more a step: of train_s, evaluation and what is fixed included, where steps are alike. "
            "S more outside: of total_s less train_s. The intervals of either column hold at once, too."
        ),
        columns=columns(
            *(*words[:4], "pairs", "train_s, ratio", "95 % interval", "p (Bonferroni)", "ms more a step"),
            *("verdict", "s more outside", "verdict, outside"),
            words=words,
        ),
        rows=[
            [
                ", ".join(each.axes),
                ", ".join(map(value_text, each.values)),
                ", ".join(map(value_text, each.first)),
                where_text(each),
                run_count(each.ratio.n),
                Value(each.ratio.ratio, RATIO),
                plain_interval(each.ratio.low, each.ratio.high, RATIO),
                Value(each.ratio.p, P_VALUE),
                step_value(each.more_a_step),
                verdict(each.ratio),
                seconds_value(each.more_outside),
                seconds_verdict(each.more_outside),
            ]
            for each in found
        ],
        after=[
            f"Runs that differ in {axis} are in different blocks, so the difference includes whatever else "
            "changed on the machines between them."
            for axis in OF_BLOCKS
            if any(axis in each.axes for each in found)
        ],
    )


def where_text(each: SettingComparison) -> str:
    """What the two runs have in common."""
    cell = each.cell
    place = f"{cell.stack}, workers {cell.workers}, epochs {cell.epochs}"
    rest = {name: value for name, value in cell.settings.items() if name not in each.axes}
    return ", ".join(filter(None, (place, setting_text(rest))))


def _of_several(each: SettingComparison) -> bool:
    return len(each.axes) > 1
