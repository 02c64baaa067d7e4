"""What a campaign that decides (`--decide`) has decided so far."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.analysis.comparisons import comparisons, sibling
from experiments.analysis.dissertation import dissertation
from experiments.analysis.figures import Cell, figures_of
from experiments.analysis.noise import noise
from experiments.analysis.statistics import Ratio
from experiments.analysis.verdicts import is_small, outcome
from experiments.campaign.campaign import Campaign
from experiments.campaign.sequential import FIRST_LOOK, SequentialRule


@dataclass(frozen=True)
class Look:
    """The comparisons with the baseline that the campaign is for."""

    decided: list[Cell]
    undecided: list[Cell]


def look(campaign: Campaign, rule: SequentialRule) -> Look:
    """What its records show by now.

    Raises:
        UserError: a record is damaged.
    """
    figures = figures_of(campaign)
    possible = [
        {name: value for name, value in run.axes.items() if name != "seed"}
        for run in campaign.file.measured
        if run.cannot_run is None
    ]
    baseline = campaign.file.baseline
    wanted = [
        cell
        for cell in figures.cells
        if cell.stack != baseline
        and cell.axes in possible
        and (base := sibling(figures.cells, cell, stack=baseline)) is not None
        and base.axes in possible
    ]
    ratios = [
        (each.cell.axes, each.ratio) for each in comparisons(figures, dissertation(), noise(figures).floor)
    ]
    decided = [axes for axes, ratio in ratios if is_decided(ratio, rule.margin)]
    return Look(
        [cell for cell in wanted if cell.axes in decided],
        [cell for cell in wanted if cell.axes not in decided],
    )


def is_decided(ratio: Ratio, margin: float) -> bool:
    """Whether a ratio shows a difference, or that any difference is below the margin."""
    if ratio.n < FIRST_LOOK:
        return False
    return outcome(ratio) in ("longer", "shorter") or is_small(ratio, margin)
