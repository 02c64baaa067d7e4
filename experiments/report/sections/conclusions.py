"""The report's sentences: what the figures say, and never more than their intervals allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from experiments.analysis.analysis import Analysis
from experiments.analysis.comparisons import StackComparison
from experiments.analysis.figures import Apart, Cell, Figures
from experiments.analysis.statistics import MARGIN, Ratio
from experiments.analysis.verdicts import Outcome, outcome
from experiments.report.arithmetic_words import ALIKE, apart_text, on_other_processors, together
from experiments.report.formats import PERCENT, RATIO, interval, number, quantity, span
from experiments.report.names import by_length, cells_name, envelope, stack_name
from experiments.report.sections.drift import drift_sentences
from experiments.report.sections.findings import setting_sentences, step_sentences
from experiments.report.sections.own_clock import own_clock_sentences
from experiments.report.sections.references import references_conclusion
from experiments.report.sections.stack_comparisons import doubt_of, excluded_sentences, noise_sentences
from experiments.report.sections.to_quality import unusable_target
from experiments.report.sections.users import company_sentences
from experiments.util.words import counted, listed

SIMULATED: Final = (
    "Nothing was trained: a simulated accelerator took a set time for every step. These are the times of "
    "what surrounds the steps, and are set beside no real training."
)
SEVERAL: Final = 6
"""Comparisons, at most, that are named one by one in a sentence."""

NOT_OF_TIMES: Final = "The stacks' times are not compared."


def conclusions(analysis: Analysis) -> list[str]:
    """The sentences after that on equal weights: the stacks' times, scaling, missing results."""
    return [
        *([SIMULATED] if analysis.figures.campaign.simulated else []),
        *([] if doubt_of(analysis.figures) else excluded_sentences(analysis.comparisons)),
        *([] if doubt_of(analysis.figures) else own_clock_sentences(analysis.own_clock)),
        *_of_standins(analysis.figures),
        *company_sentences(analysis.figures, analysis.unmatched_occasions),
        *noise_sentences(analysis.noise, analysis.figures.campaign.baseline),
        *drift_sentences(analysis.drift),
        *_of_times(analysis),
        *references_conclusion(analysis.references),
        *unusable_target(analysis.to_quality),
    ]


def _of_standins(figures: Figures) -> list[str]:
    """Which stacks' times are missing because a stand-in made their runs; nothing if none did."""
    made = figures.by_standin
    if not made:
        return []
    stacks = sorted({record.specification.stack for record in made})
    were = "was" if len(made) == 1 else "were"
    return [
        f"{counted(len(made), 'run')} of {listed(stacks)} {were} made by a stand-in, so nothing is said "
        "about what they took."
    ]


def _of_times(analysis: Analysis) -> list[str]:
    """The stacks' times, scaling, and missing results.

    If a matrix asks for something else, what its ladders or settings say comes first, and nothing is said
    about what it doesn't ask for. If equal work ended with different weights, times are not compared.
    """
    figures, compared = analysis.figures, analysis.comparisons
    lacking = [*sequential_sentence(figures), *_lacking(figures)]
    workers = workers_sentence(figures, analysis.noise.floor)
    if figures.weights_differ or figures.unproven:
        return [NOT_OF_TIMES, workers, *lacking]
    asked = [*step_sentences(analysis.waterfalls), *setting_sentences(analysis.settings)]
    times = times_sentence(compared, figures.campaign.baseline)
    if not asked:
        return [times, workers, *lacking]
    scaled = any(cell.speed_up is not None for cell in figures.cells)
    asked += [times] if compared and not analysis.waterfalls else []
    asked += [workers] if scaled else []
    return [*asked, *lacking]


def weights_sentence(figures: Figures) -> str:
    """Whether equal work gave equal weights on all stacks, and which runs prove nothing about that."""
    if figures.unproven:
        runs = counted(figures.without_digest, "run")
        unproven = f"Equal work is not proven: the programs of {runs} reported no digest of their weights."
        return f"{unproven} {_on_weights(figures)}" if figures.works else unproven
    if not figures.by_chance:
        return _on_weights(figures)
    without = f"{counted(figures.by_chance, 'run')} without deterministic algorithms"
    if not figures.works and not figures.works_of_one_stack:
        return f"Equal work is not proven: {without} may end with other bits by chance."
    return f"{_on_weights(figures)} {without} may end with other bits by chance, and are left out."


def _on_weights(figures: Figures) -> str:
    compared = len(figures.works)
    differing = sum(not work.equal for work in figures.works)
    apart = _apart(figures.works_apart)
    if not compared:
        return apart or "No workload was finished on more than one stack, so there are no weights to compare."
    if differing:
        return (
            f"Equal work did NOT give equal weights: {differing} of {compared} workloads ended differently. "
            "The stacks did not do the same work, so their times can't be compared."
        )
    text = (
        "Equal work gave equal weights, to the last bit, on all stacks that did it "
        f"({counted(compared, 'workload')} compared)."
    )
    if alone := figures.works_of_one_stack:
        were = "was" if alone == 1 else "were"
        text += f" {counted(alone, 'other workload')} {were} finished on one stack only."
    return f"{text} {apart}".rstrip()


def _apart(works: Sequence[Apart]) -> str:
    """On works that stacks did with other processors, threads or libraries, by name; "" without any."""
    if not works:
        return ""
    found = together(works)
    hint = f"; {ALIKE}" if on_other_processors(found) else ""
    return (
        f"The last bits of the weights of {counted(len(works), 'workload')} can't be compared, as stacks did "
        f"not compute alike: {apart_text(found)}{hint}."
    )


def times_sentence(compared: list[StackComparison], baseline: str) -> str:
    """How the stacks' times compare with the baseline's."""
    if not compared:
        return f"No stack has runs that can be paired with {baseline}'s, so nothing is said about their cost."
    certain = [each for each in compared if each.outcome != "none"]
    if not certain:
        return (
            f"No comparison with {baseline} has an interval, as each rests on a single pair of runs or on "
            "pairs without any spread, so no difference in training time is claimed."
        )
    sentences = _one_by_one(certain) if len(certain) <= SEVERAL else _by_verdict(certain)
    pairs = span([each.ratio.n for each in certain])
    said = f"Training, against {baseline}: {'; '.join(sentences)}, from {pairs} pairs of runs each."
    without = len(compared) - len(certain)
    return (
        f"{said} {counted(without, 'more comparison')} without an interval can't tell." if without else said
    )


def _one_by_one(compared: Sequence[StackComparison]) -> list[str]:
    """Each comparison; those of several lengths in one if none can be told apart from the baseline."""
    cells = [each.cell for each in compared]
    return [
        f"{cells_name([each.cell for each in group], cells)} {_verdict(group)}"
        for alike in by_length(compared, lambda each: each.cell)
        for group in (
            [alike] if all(each.outcome == "open" for each in alike) else [[each] for each in alike]
        )
    ]


def _by_verdict(compared: Sequence[StackComparison]) -> list[str]:
    """In how many comparisons each stack came out how; a table names each."""
    groups: dict[tuple[str, Outcome], list[StackComparison]] = {}
    for each in compared:
        groups.setdefault((each.cell.stack, each.outcome), []).append(each)
    among = Counter(each.cell.stack for each in compared)
    said = []
    for (stack, _), group in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
        share = "all" if len(group) == among[stack] else f"{len(group)} of"
        said.append(f"{stack} {_verdict(group)} in {share} {counted(among[stack], 'comparison')}")
    return said


def _verdict(group: Sequence[StackComparison]) -> str:
    """What comparisons with one outcome say of a stack."""
    low, high = envelope([each.ratio for each in group])
    times = f"{interval(low, high, RATIO)} times"
    match group[0].outcome:
        case "longer" | "shorter":
            return f"takes {times} as long"
        case "noise":
            return f"differs from it by no more than the noise ({times} as long)"
        case "same":
            return f"takes the same time within {quantity(MARGIN, PERCENT)}"
        case _:
            return f"can't be told apart from it ({times})"


def sequential_sentence(figures: Figures) -> list[str]:
    """By which rule the campaign ended, if it has one that could end it before all its runs."""
    campaign = figures.campaign
    if campaign.sequential is None:
        return []
    percent, looks = f"{campaign.sequential.percent:g} %", campaign.looks
    seeds = len({record.specification.work.seed for record in figures.counting})
    planned = len({run.specification.work.seed for run in campaign.measured})
    ended = any(each.reason == "not needed" for each in figures.not_run)
    return [
        "Seed after seed was run until each stack either differed from "
        f"{campaign.baseline} or took the same time within {percent} (--decide), with {planned} seeds at most"
        + (f": all was decided after {seeds}." if ended else f"; by now there are {seeds}.")
        + f" Intervals hold for {counted(looks, 'look')} at the runs."
    ]


def _lacking(figures: Figures) -> list[str]:
    """A sentence on the runs without a result, if there are any."""
    not_needed = {each.run.run_id for each in figures.not_run if each.reason == "not needed"}
    planned = [run for run in figures.campaign.wanted if run.run_id not in not_needed]
    lacking = len(figures.not_run) - len(not_needed)
    if not lacking:
        return []
    stacks = dict.fromkeys(run.specification.stack for run in planned)
    without = [
        name for name in stacks if all(record.specification.stack != name for record in figures.results)
    ]
    all_of = sum(run.specification.stack in without for run in planned)
    have = "has" if lacking == 1 else "have"
    said = f"{lacking} of {counted(len(planned), 'planned run')} {have} no result that counts"
    if without:
        said += f"{':' if all_of == lacking else ', among them'} all of {listed(without)}"
    return [f"{said}."]


def workers_sentence(figures: Figures, floor: float | None) -> str:
    """How much faster several workers train than one, stack by stack.

    `floor` is the noise floor, as a fraction of train_s.
    """
    cells = [
        (cell, replace(cell.speed_up, floor=floor)) for cell in figures.cells if cell.speed_up is not None
    ]
    if not cells:
        return "No stack has been run with one worker and with several, so nothing is said about scaling."
    sentences = [
        _speed_up(group, [each for each, _ in cells])
        for alike in by_length(cells, lambda each: each[0])
        for group in ([alike] if _say_alike([each for _, each in alike]) else [[each] for each in alike])
    ]
    pairs = [ratio.n for _, ratio in cells]
    note = ", from single runs" if max(pairs) == 1 else f", from {span(pairs)} seeds each"
    problem = (
        "the training problem is the same, because the batch is shared"
        if figures.same_steps
        else "the training problem differs, because they take fewer steps"
    )
    return f"{'; '.join(sentences)}{note}; {problem}."


def _speed_up(group: Sequence[tuple[Cell, Ratio]], among: Sequence[Cell]) -> str:
    """How much faster several workers train on one stack, as an interval if there is one."""
    found, workers = group[0][1], group[0][0].workers
    on = stack_name([each for each, _ in group], among)
    than = f"as fast as one on {on}"
    if found.low is None or found.high is None:
        share = quantity(found.ratio / workers, PERCENT)
        return f"{workers} workers train {number(found.ratio, RATIO)} times {than} ({share})"
    low, high = envelope([ratio for _, ratio in group])
    times = f"{interval(low, high, RATIO)} times"
    if low <= 1 <= high:
        return f"{workers} workers can't be told apart from one on {on} ({times} as fast)"
    if outcome(found) == "noise":
        return f"{workers} workers differ from one on {on} by no more than the noise ({times} as fast)"
    share = interval(low / workers, high / workers, PERCENT)
    return f"{workers} workers train {times} {than} ({share})"


def _say_alike(found: Sequence[Ratio]) -> bool:
    """Whether several ratios show the same: more, less, no more than the noise, or neither."""
    shown = ["open" if (each := outcome(ratio)) == "same" else each for ratio in found]
    return len(set(shown)) == 1 and shown[0] != "none"
