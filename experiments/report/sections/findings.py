"""What a ladder's steps and a matrix's settings bring, as sentences for the report's top."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.analysis.figures import value_text
from experiments.analysis.ladders import Step, Waterfall
from experiments.analysis.verdicts import ALPHA
from experiments.report.sections.settings import Setting, where_text


def step_sentences(found: Sequence[Waterfall]) -> list[str]:
    """Which steps of the ladders cost or save time for certain; none where no step was measured in pairs."""
    steps = [(each, step) for each in found for step in each.steps if step.corrected_p is not None]
    if not steps:
        return []
    told = [_step(waterfall, step) for waterfall, step in steps if step.certain]
    return [f"Of the ladders' steps, {_all_of(told, len(steps))}."]


def setting_sentences(found: Sequence[Setting]) -> list[str]:
    """Which settings change training's time for certain; none where none was compared in pairs."""
    known = [each for each in found if each.corrected_p is not None]
    if not known:
        return []
    told = [_setting(each) for each in known if (each.corrected_p or 0.0) < ALPHA]
    return [f"Of the settings' comparisons, {_all_of(told, len(known))}."]


def _all_of(told: Sequence[str], number: int) -> str:
    rest = number - len(told)
    return "; ".join([*told, *([f"{rest} of {number} can't tell"] if rest else [])])


def _step(waterfall: Waterfall, step: Step) -> str:
    low, high = step.seconds.low or 0.0, step.seconds.high or 0.0  # a step that is certain has both
    if step.seconds.mean > 0:
        said = f"{low:.2f} to {high:.2f} s longer"
    else:
        said = f"{-high:.2f} to {-low:.2f} s less"
    return f'{waterfall.name}: "{step.above}" takes {said} than "{step.below}"'


def _setting(each: Setting) -> str:
    what = f"{each.axis} {value_text(each.cell.axes[each.axis])}"
    times = f"{each.ratio.low:.2f} to {each.ratio.high:.2f} times"
    first = value_text(each.first) if each.first is not None else f"{each.axis} none"
    return f"{what} takes {times} as long as {first} ({where_text(each)})"
