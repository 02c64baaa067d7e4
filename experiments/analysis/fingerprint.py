"""What a stack's overhead grows with: a cost once, in each step, for each sample trained on, or evaluated.

A step of the same work has other samples with another batch, and an epoch other samples to evaluate if the
evaluation is shared out, made by every rank, or left out. So runs that vary these tell four costs apart that
runs of a single kind add up. A cost in each step points at the loop and its launcher, one for each sample at
the data, one for each evaluated sample at the evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final, Literal

import numpy as np

from experiments.analysis.comparisons import sibling
from experiments.analysis.factors import MS
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import Difference, differences_together, mean_difference
from experiments.analysis.step_samples import BATCH, samples_of_a_run
from experiments.records.record import Record

Term = Literal["once", "step", "trained", "evaluated"]
TERMS: Final[tuple[Term, ...]] = ("once", "step", "trained", "evaluated")
VARIED: Final = ("batch_per_worker", "evaluation", "epochs")
Pair = tuple[Record, Record]


@dataclass(frozen=True)
class Fingerprint:
    """What a stack takes more than the baseline, with as many workers and the same other settings.

    The intervals hold for all fingerprints at once.
    `once` is in s; `step` in ms; `trained` and `evaluated` in ms for each 32 samples of a rank.
    """

    stack: str
    workers: int
    settings: dict[str, Any]  # the values of the axes that are not varied
    costs: dict[Term, Difference]
    confounded: list[Term]  # what these runs can't tell from the others
    cells: int


def fingerprints(figures: Figures, floor: float | None = None) -> list[Fingerprint]:
    """Of every stack whose runs vary the batch or the evaluation, so that three terms can be told apart.

    `floor` is the noise floor, as a fraction of the baseline's train_s.
    """
    baseline, groups = figures.campaign.baseline, dict[str, list[Cell]]()
    for cell in figures.cells:
        if cell.stack != baseline and cell.axes.keys() & {"batch_per_worker", "evaluation"}:
            fixed = {name: value for name, value in cell.axes.items() if name not in VARIED}
            groups.setdefault(repr(fixed), []).append(cell)
    found = [each for cells in groups.values() if (each := _fingerprint(cells, figures, floor)) is not None]
    costs = [cost for each in found for cost in each.costs.values()]
    together = iter(differences_together(costs, figures.campaign.looks))
    return [
        replace(
            each,
            costs={term: replace(next(together), floor=cost.floor) for term, cost in each.costs.items()},
        )
        for each in found
    ]


def _fingerprint(cells: Sequence[Cell], figures: Figures, floor: float | None) -> Fingerprint | None:
    """With single intervals; None if there are no pairs, or they tell fewer than three terms apart."""
    by_seed: dict[int, dict[int, Pair]] = {}
    for at, cell in enumerate(cells):
        base = sibling(figures.cells, cell, stack=figures.campaign.baseline)
        for pair in paired_by_seed(cell.records, base.records) if base else ():
            by_seed.setdefault(pair[0].specification.work.seed, {})[at] = pair
    if not by_seed:
        return None
    whole = max((tuple(pairs) for pairs in by_seed.values()), key=len)
    complete = [[*pairs.values()] for pairs in by_seed.values() if tuple(pairs) == whole]
    # [pairs of a seed, terms]
    design = np.array([_grown(record) for record, _ in complete[0]])
    kept = list[int]()
    for at in range(len(TERMS)):
        if np.linalg.matrix_rank(design[:, [*kept, at]]) == len(kept) + 1:
            kept.append(at)
    if len(kept) < 3:
        return None
    more = [np.array([_more_s(*pair) for pair in pairs]) for pairs in complete]
    solved = [np.linalg.lstsq(design[:, kept], seconds)[0] for seconds in more]
    units = [_unit(TERMS[at]) for at in kept]
    costs = [mean_difference(values) for values in (np.array(solved) * units).T.tolist()]
    floor_s = None if floor is None else floor * fmean(below.train_s or 0.0 for _, below in complete[0])
    floors = [None if floor_s is None else floor_s / float(design[:, at].mean()) for at in kept]
    return Fingerprint(
        stack=cells[0].stack,
        workers=cells[0].workers,
        settings={name: value for name, value in cells[0].settings.items() if name not in VARIED},
        costs={
            TERMS[at]: replace(cost, floor=None if least is None else least * unit)
            for at, cost, least, unit in zip(kept, costs, floors, units, strict=True)
            if cost is not None  # there is at least one seed
        },
        confounded=[term for at, term in enumerate(TERMS) if at not in kept],
        cells=len(whole),
    )


def _more_s(above: Record, below: Record) -> float:
    return (above.train_s or 0.0) - (below.train_s or 0.0)


def _grown(record: Record) -> list[float]:
    """How much of each term a run has: one, its steps, a rank's samples in batches of the dissertation."""
    specification = record.specification
    whole = samples_of_a_run(specification)
    return [1.0, float(specification.work.steps), whole.trained / BATCH, whole.evaluated / BATCH]


def _unit(term: Term) -> float:
    return 1.0 if term == "once" else MS
