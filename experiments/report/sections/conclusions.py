"""The report's first sentences: what the figures say, and never more than their intervals allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.analysis.comparisons import Compared
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.ladders import Waterfall
from experiments.analysis.statistics import MARGIN, Ratio
from experiments.analysis.verdicts import outcome
from experiments.report.cell_names import by_length, envelope, listed, named, scaled
from experiments.report.sections.findings import setting_sentences, step_sentences
from experiments.report.sections.settings import Setting
from experiments.util.words import counted

NOT_OF_TIMES: Final = "So nothing is said of their times against one another."


def conclusions(
    figures: Figures, compared: list[Compared], ladders: Sequence[Waterfall], found: Sequence[Setting]
) -> list[str]:
    """What follows the sentence on equal weights: the stacks' times, what more workers bring, what lacks.

    Where a matrix asks for something else, what its ladders or settings say stands first, and nothing is said
    of what it doesn't ask for. Where equal work ended with different weights, their times are not compared.
    """
    lacking, workers = _lacking(figures), _workers(figures)
    if weights_differ(figures):
        return [NOT_OF_TIMES, workers, *lacking]
    asked = [*step_sentences(ladders), *setting_sentences(found)]
    times = _times(compared, figures.campaign.baseline)
    if not asked:
        return [times, workers, *lacking]
    scaled = any(cell.speed_up is not None for cell in figures.cells)
    return [*asked, *([times] if compared and not ladders else []), *([workers] if scaled else []), *lacking]


def weights_differ(figures: Figures) -> bool:
    """Whether equal work ended with different weights, so that times can't be compared."""
    return any(not work.equal for work in figures.compared)


def weights_sentence(figures: Figures) -> str:
    """Whether equal work gave equal weights on all stacks."""
    compared = len(figures.compared)
    differing = sum(not work.equal for work in figures.compared)
    if not compared:
        return "No work has been finished on more than one stack, so there are no weights to compare."
    if differing:
        return (
            f"Equal work did NOT give equal weights: {differing} of {compared} works ended differently. "
            "The stacks did not do the same work, and their times can't be compared."
        )
    text = (
        "Equal work gave equal weights, to the last bit, on all stacks that did it "
        f"({counted(compared, 'work')} compared)."
    )
    if figures.alone:
        were = "was" if figures.alone == 1 else "were"
        text += f" {counted(figures.alone, 'other work')} {were} finished on one stack only."
    return text


def _times(compared: list[Compared], baseline: str) -> str:
    if not compared:
        return f"No stack has runs that could be paired with {baseline}'s: nothing is said of their cost."
    certain = [each for each in compared if each.corrected_p is not None]
    if not certain:
        return (
            f"Each comparison with {baseline} rests on a single pair of runs: no difference in training time "
            "is claimed."
        )
    cells = [each.cell for each in certain]
    told = [
        _against(group, cells, len(certain))
        for alike in by_length(certain, lambda each: each.cell)
        for group in ([alike] if all(map(_plainly_unknown, alike)) else [[each] for each in alike])
    ]
    pairs = span_text([each.ratio.n for each in certain])
    said = f"Training, against {baseline}: {'; '.join(told)}, from {pairs} pairs of runs each."
    single = len(compared) - len(certain)
    return f"{said} {counted(single, 'more comparison')} with a single pair can't tell." if single else said


def _against(group: Sequence[Compared], among: Sequence[Cell], number: int) -> str:
    """What one comparison says, or those of several lengths that can't be told from the baseline."""
    name = named([each.cell for each in group], among)
    low, high = envelope([each.ratio for each in group])
    shown = outcome(group[0].ratio, group[0].corrected_p)
    if shown in ("longer", "shorter"):
        return f"{name} takes {low:.2f} to {high:.2f} times as long"
    if shown == "same":
        return f"{name} takes the same time within {MARGIN * 100:.0f} %"
    why = "" if low <= 1 <= high else f"; not significant among {number} comparisons"
    return f"{name} can't be told from it ({low:.2f} to {high:.2f} times{why})"


def _plainly_unknown(each: Compared) -> bool:
    """Whether it can't be told from the baseline, and its own interval says so already."""
    known = outcome(each.ratio, each.corrected_p) in ("longer", "shorter", "same")
    low, high = envelope([each.ratio])
    return not known and low <= 1 <= high


def _lacking(figures: Figures) -> list[str]:
    """One sentence on the runs that have no result, if there are any."""
    planned, lacking = figures.campaign.measured, len(figures.not_run)
    if not lacking:
        return []
    stacks = dict.fromkeys(run.specification.stack for run in planned)
    without = [
        name for name in stacks if all(record.specification.stack != name for record in figures.counting)
    ]
    all_of = sum(run.specification.stack in without for run in planned)
    have = "has" if lacking == 1 else "have"
    said = f"{lacking} of {counted(len(planned), 'planned run')} {have} no result that counts"
    if without:
        said += f"{':' if all_of == lacking else ', among them'} all of {listed(without)}"
    return [f"{said}."]


def _workers(figures: Figures) -> str:
    cells = [(cell, cell.speed_up) for cell in figures.cells if cell.speed_up is not None]
    if not cells:
        return "No stack has been run with one worker and with more, so nothing is said of scaling."
    told = [
        _speed_up(group, [each for each, _ in cells])
        for alike in by_length(cells, lambda each: each[0])
        for group in ([alike] if _say_alike([each for _, each in alike]) else [[each] for each in alike])
    ]
    pairs = [ratio.n for _, ratio in cells]
    note = ", from single runs" if max(pairs) == 1 else f", from {span_text(pairs)} seeds each"
    problem = (
        "on the same training problem, for the batch is shared"
        if same_steps(figures)
        else "with another training problem, for they take fewer steps"
    )
    return f"{'; '.join(told)}{note}: {problem}."


def _speed_up(group: Sequence[tuple[Cell, Ratio]], among: Sequence[Cell]) -> str:
    """What more workers bring one stack: as an interval where there is one, of several lengths together."""
    found, workers = group[0][1], group[0][0].workers
    on = scaled([each for each, _ in group], among)
    than = f"as fast as one on {on}"
    if found.low is None or found.high is None:
        share = f"{found.ratio / workers * 100:.0f} %"
        return f"{workers} workers train {found.ratio:.2f} times {than} ({share})"
    low, high = envelope([ratio for _, ratio in group])
    times = f"{low:.2f} to {high:.2f} times"
    if low <= 1 <= high:
        return f"{workers} workers can't be told from one on {on} ({times} as fast)"
    share = f"{low / workers * 100:.0f} to {high / workers * 100:.0f} %"
    return f"{workers} workers train {times} {than} ({share})"


def _say_alike(found: Sequence[Ratio]) -> bool:
    """Whether several ratios with intervals are all above 1, all below it, or all not told from it."""
    ends = [(each.low, each.high) for each in found if each.low is not None and each.high is not None]
    return len(ends) == len(found) and len({(low > 1, high < 1) for low, high in ends}) == 1


def span_text(numbers: list[int]) -> str:
    """`5`, or `3 to 5`."""
    return " to ".join(str(number) for number in dict.fromkeys((min(numbers), max(numbers))))


def same_steps(figures: Figures) -> bool:
    """Whether an epoch has as many steps in every run, whatever its number of workers."""
    works = [record.specification.work for record in figures.counting]
    several = any(work.workers > 1 for work in works)
    return several and len({work.steps_per_epoch for work in works}) == 1
