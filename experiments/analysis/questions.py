"""What a campaign has to say about the dissertation's research questions, and what it lacks for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.analysis.comparisons import StackComparison
from experiments.analysis.dissertation import Dissertation, Question
from experiments.analysis.dissertation_figures import PublishedFigure
from experiments.analysis.figures import Figures
from experiments.analysis.noise import Noise
from experiments.analysis.organisation import Named, Offered, Started, largest_run, named, offered, started
from experiments.analysis.users import Occasion
from training.registry import DEFAULT


@dataclass(frozen=True)
class Beyond:
    """A stack's time over the baseline's, here and in the dissertation: the range over all cells."""

    low: float  # of the intervals here; of the ratios, if none has an interval
    high: float
    has_interval: bool
    published_low: float
    published_high: float


@dataclass(frozen=True)
class Lacking:
    """What keeps a campaign from answering."""

    gpus: bool  # no run that counts trained on one
    stacks: tuple[str, ...]  # of the dissertation, without a run that counts
    by_standin: tuple[str, ...]  # stacks of which a stand-in made runs
    pairs: int | None  # the most behind any comparison, if the dissertation has more runs; None: enough
    published_runs: int  # the most behind any of its figures
    repetition: bool  # no A/A test says how far apart equal runs are
    scaling: bool  # no stack ran with one worker and with several
    company: bool  # no two users were measured at once


@dataclass(frozen=True)
class Questions:
    """The research questions beside what this campaign has counted."""

    asked: list[Question]
    beyond: dict[str, Beyond]  # by stack
    started: dict[str, Started]  # by stack, of its largest run
    offered: dict[str, Offered]  # by stack; those whose roles said something when the campaign began
    named: dict[str, Named]  # what table 5.11 names and was not tried, by stack
    elsewhere_unshown: list[str]  # stacks with a claim about submitting from outside that nothing shows
    elsewhere_unrecorded: list[str]  # stacks without such a claim
    lacking: Lacking


def questions(
    figures: Figures,
    dissertation: Dissertation,
    published: Sequence[PublishedFigure],
    compared: Sequence[StackComparison],
    noise: Noise,
    occasions: Sequence[Occasion],
) -> Questions | None:
    """What this campaign says; None if it can't be set beside the dissertation.

    That is one without a stack of the dissertation's, one with ladders, one that trained nothing, and one of
    another kind of workload. Where equal work is not proven, there is an answer: that there is none.
    """
    campaign = figures.campaign
    works = [run.specification.work for run in campaign.measured]
    stacks = list(dict.fromkeys(run.specification.stack for run in campaign.measured))
    of_another_kind = any(work.workload != DEFAULT or work.data.has_own_loop for work in works)
    if (
        campaign.ladders
        or campaign.simulated
        or of_another_kind
        or not set(stacks) & set(dissertation.stacks)
    ):
        return None
    known = figures.setup.stacks.stacks if figures.setup.stacks is not None else {}
    starts = {stack: started(largest_run(figures, stack)) for stack in stacks}
    facts = {name: stack.facts for name, stack in known.items() if stack.facts is not None}
    elsewhere = {stack: facts[stack].using.elsewhere if stack in facts else None for stack in stacks}
    return Questions(
        asked=dissertation.questions,
        beyond=_beyond(published),
        started={stack: each for stack, each in starts.items() if each is not None},
        offered={name: offered(each) for name, each in facts.items()},
        named=named(known, dissertation),
        elsewhere_unshown=[name for name, each in elsewhere.items() if each is not None and not each.shown],
        elsewhere_unrecorded=[name for name, each in elsewhere.items() if each is None],
        lacking=_lacking(figures, dissertation, compared, noise, occasions),
    )


def _beyond(published: Sequence[PublishedFigure]) -> dict[str, Beyond]:
    """The rows of table 5.7 that have a figure here, by stack."""
    rows: dict[str, list[PublishedFigure]] = {}
    for each in published:
        if "5.7" in each.tables and each.here is not None:
            rows.setdefault(each.stack, []).append(each)
    return {stack: _range(found) for stack, found in rows.items()}


def _range(found: Sequence[PublishedFigure]) -> Beyond:
    ends = [(each.low, each.high) for each in found if each.low is not None and each.high is not None]
    here = [(each.here, each.here) for each in found if each.here is not None]
    shown = ends or here
    there = [each.published for each in found]
    return Beyond(
        low=min(low for low, _ in shown),
        high=max(high for _, high in shown),
        has_interval=bool(ends),
        published_low=min(there),
        published_high=max(there),
    )


def _lacking(
    figures: Figures,
    dissertation: Dissertation,
    compared: Sequence[StackComparison],
    noise: Noise,
    occasions: Sequence[Occasion],
) -> Lacking:
    ran = {record.specification.stack for record in figures.counting}
    standins = {record.specification.stack for record in figures.by_standin}
    most = max(run.of_runs for run in dissertation.runs)
    pairs = max((each.ratio.n for each in compared), default=None)
    return Lacking(
        gpus=not any(record.specification.conditions.device == "cuda" for record in figures.counting),
        stacks=tuple(stack for stack in dissertation.stacks if stack not in ran),
        by_standin=tuple(sorted(standins)),
        pairs=pairs if pairs is not None and pairs < most else None,
        published_runs=most,
        repetition=noise.floor is None,
        scaling=all(cell.speed_up is None for cell in figures.cells),
        company=not occasions,
    )
