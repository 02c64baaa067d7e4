"""From texts to a trained model: the times of runs that make their own tokens, preparing included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import Cell, Figures
from experiments.analysis.noise import farther_end, repetitions
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import Estimate, Ratio, estimate, paired_ratio, ratios_together
from experiments.records.record import Record


@dataclass(frozen=True)
class FromTexts:
    """A cell whose runs begin with texts; intervals of `ratio` hold for all of them.

    The noise floor of `ratio` is that of the whole, by runs of the baseline that were repeated.
    """

    cell: Cell
    records: list[Record]  # those that count
    preparing_s: Estimate
    training_s: Estimate
    end_to_end_s: Estimate
    preparing_ratio: Ratio | None  # over the baseline's, by pairs of the same seed; None without pairs
    ratio: Ratio | None  # the same from end to end


def end_to_end(record: Record) -> float:
    """Seconds from the start of preparing, or of the stack's command, until that command has ended.

    If the command starts after preparing has ended, the gap is not counted: it is Ansible's own time.
    """
    assert record.launch is not None and record.prepared is not None  # see `_records`
    launch, prepared = record.launch, record.prepared
    within = prepared.seconds_within(launch.started, launch.ended)
    return launch.ended - launch.started + prepared.seconds - within


def from_texts(figures: Figures) -> list[FromTexts]:
    """Every cell with runs that begin with texts; ratios are to the same cell of the baseline stack."""
    baseline = figures.campaign.baseline
    found = []
    for cell in figures.cells:
        records = _records(cell)
        base = sibling(figures.cells, cell, stack=baseline)
        preparing, training, whole = (
            estimate([_preparing(record) for record in records]),
            estimate([record.train_s for record in records if record.train_s is not None]),
            estimate([end_to_end(record) for record in records]),
        )
        if preparing is None or training is None or whole is None:
            continue
        pairs = paired_by_seed(records, _records(base)) if base and cell.stack != baseline else []
        found.append(
            FromTexts(
                cell=cell,
                records=records,
                preparing_s=preparing,
                training_s=training,
                end_to_end_s=whole,
                preparing_ratio=_ratio(pairs, _preparing),
                ratio=_ratio(pairs, end_to_end),
            )
        )
    ratios = [each.ratio for each in found if each.ratio]
    together, floor = iter(ratios_together(ratios, figures.campaign.looks)), _floor(figures)
    return [
        replace(each, ratio=replace(next(together), floor=floor)) if each.ratio else each for each in found
    ]


def _floor(figures: Figures) -> float | None:
    """How far apart such runs are that differ in nothing, as a fraction; None if none was repeated enough."""
    pairs = [paired_by_seed(_records(cell), _records(first)) for cell, first in repetitions(figures)]
    again = [found for each in pairs if (found := _ratio(each, end_to_end)) is not None]
    ends = [farther_end(each) for each in ratios_together(again, figures.campaign.looks)]
    return max((each for each in ends if each is not None), default=None)


def _ratio(pairs: Sequence[tuple[Record, Record]], seconds: Callable[[Record], float]) -> Ratio | None:
    """Only of pairs with times above 0: a clock set back during a run yields 0 s or less."""
    times = [(seconds(ours), seconds(base)) for ours, base in pairs]
    return paired_ratio([pair for pair in times if min(pair) > 0])


def _records(cell: Cell) -> list[Record]:
    return [record for record in cell.timed if record.prepared is not None and record.launch is not None]


def _preparing(record: Record) -> float:
    assert record.prepared is not None
    return record.prepared.seconds
