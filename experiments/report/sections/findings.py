"""The effects of a ladder's steps and a matrix's settings, as sentences for the report's top."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from experiments.analysis.ladders import Step, Waterfall
from experiments.analysis.settings import SettingComparison
from experiments.analysis.verdicts import Outcome, sign
from experiments.report.formats import NOTHING, RATIO, interval
from experiments.report.names import ladder_name, value_text
from experiments.report.sections.settings import where_text
from experiments.report.verdict_words import SAME

MANY: Final = 3  # comparisons of settings, more of which are counted
REST: Final[dict[Outcome, str]] = {
    "same": f"show {SAME}",
    "noise": "show no more than noise",
    "open": "can't tell",
}


def step_sentences(found: Sequence[Waterfall]) -> list[str]:
    """Which ladder steps certainly cost or save time; empty if no step was measured in several pairs."""
    steps = [(each, step) for each in found for step in each.steps if step.outcome != "none"]
    if not steps:
        return []
    certain = [_step(waterfall, step) for waterfall, step in steps if step.certain]
    said = "; ".join([*certain, *_rest(len(steps) - len(certain), len(steps), REST["open"])])
    return [f"Among the ladders' steps, {said}."]


def setting_sentences(found: Sequence[SettingComparison]) -> list[str]:
    """Which settings certainly change training's time, or what is outside it; empty without several pairs."""
    known = [each for each in found if each.outcome != "none"]
    outside = [each for each in found if each.more_outside is not None and sign(each.more_outside)]
    sentences = []
    if known:
        certain = [each for each in known if each.outcome in ("longer", "shorter")]
        said = [_setting(each) for each in certain] if len(certain) <= MANY else _by_setting(certain, known)
        for outcome, words in REST.items():
            said += _rest(sum(each.outcome == outcome for each in known), len(known), words)
        sentences.append(f"Among the comparisons of settings, {'; '.join(said)}.")
    if outside:
        sentences.append(f"Outside train_s, {'; '.join(map(_setting_outside, outside))}.")
    return sentences


def _rest(count: int, number: int, words: str) -> list[str]:
    """What a `count` of all say; nothing of none."""
    return [f"{count} of {number} {words}"] if count else []


def _step(waterfall: Waterfall, step: Step) -> str:
    low, high = step.seconds.low or 0.0, step.seconds.high or 0.0  # a step that is certain has both
    if step.outcome == "costs":
        said = f"{interval(low, high, RATIO)} s longer"
    else:
        said = f"{interval(-high, -low, RATIO)} s less"
    return f'{ladder_name(waterfall)}: "{step.above}" takes {said} than "{step.below}"'


def _by_setting(certain: Sequence[SettingComparison], known: Sequence[SettingComparison]) -> list[str]:
    """In how many comparisons of each setting training takes longer or less time."""
    of_certain, of_known = (Counter(", ".join(each.axes) for each in found) for found in (certain, known))
    shares = [f"{count} of {of_known[axes]} of {axes}" for axes, count in of_certain.items()]
    return [f"a difference is shown in {len(certain)} of {len(known)} ({', '.join(shares)})"]


def _setting(each: SettingComparison) -> str:
    times = f"{interval(each.ratio.low, each.ratio.high, RATIO)} times"
    return f"{_own(each)} takes {times} as long as {_first(each)} ({where_text(each)})"


def _setting_outside(each: SettingComparison) -> str:
    found = each.more_outside
    low, high = (found.low or 0.0, found.high or 0.0) if found is not None else (0.0, 0.0)  # it has both
    more = f"{interval(low, high, RATIO)} s more" if low > 0 else f"{interval(-high, -low, RATIO)} s less"
    return f"{_own(each)} takes {more} than {_first(each)} ({where_text(each)})"


def _own(each: SettingComparison) -> str:
    return _named(each.axes, each.values)


def _first(each: SettingComparison) -> str:
    if len(each.axes) == 1 and (text := value_text(each.first[0])) not in ("none", NOTHING):
        return text
    return _named(each.axes, each.first)


def _named(axes: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{axis} {value_text(value)}" for axis, value in zip(axes, values, strict=True))
