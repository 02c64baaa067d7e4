"""From texts to a trained model: what runs that make their tokens themselves take, preparing included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from experiments.analysis.comparisons import sibling
from experiments.analysis.figures import Cell, Figures, cell_fields, setting_text
from experiments.analysis.pairing import paired_by_seed
from experiments.analysis.statistics import Estimate, Ratio, estimate, paired_ratio, ratios_together
from experiments.analysis.verdicts import verdict
from experiments.records.record import Record
from experiments.report.tables import (
    NOTHING,
    Column,
    Table,
    corrected_text,
    interval_text,
    p_text,
    stack_text,
    with_half,
)
from experiments.util.words import counted

TITLE: Final = "From texts to a trained model"
CONDITION: Final = "tokenizing"  # in_run on every row, so that none says it


@dataclass(frozen=True)
class FromTexts:
    """A cell whose runs begin with texts."""

    cell: Cell
    records: list[Record]  # those that count
    preparing_s: Estimate
    training_s: Estimate
    end_to_end_s: Estimate
    preparing_ratio: Ratio | None  # to the baseline's, by pairs of the same seed; None where it has none
    ratio: Ratio | None  # the same from end to end

    @property
    def corrected_p(self) -> float | None:
        """Of `ratio`, by Holm, for all of the table; None with one pair."""
        return self.ratio.p if self.ratio else None


def end_to_end(record: Record) -> float:
    """Seconds from the beginning of preparing, or of the stack's command, until that has ended.

    What lies between the two where the stack's command comes after preparing belongs to neither: it is the
    time that Ansible takes to go from one to the other.
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
    together = iter(ratios_together([each.ratio for each in found if each.ratio]))
    return [replace(each, ratio=next(together)) if each.ratio else each for each in found]


def _ratio(pairs: Sequence[tuple[Record, Record]], seconds: Callable[[Record], float]) -> Ratio | None:
    """Of pairs with times above 0: a clock that was set back within a run leaves 0 s or less."""
    times = [(seconds(ours), seconds(base)) for ours, base in pairs]
    return paired_ratio([pair for pair in times if min(pair) > 0])


def _records(cell: Cell) -> list[Record]:
    return [record for record in cell.records if record.prepared is not None and record.launch is not None]


def _preparing(record: Record) -> float:
    assert record.prepared is not None
    return record.prepared.seconds


def from_texts_table(found: Sequence[FromTexts], baseline: str) -> Table:
    """What each cell takes, piece by piece, and against the baseline."""
    numbers = ("runs", "preparing, s", "training, s", "end to end, s", "pairs")
    ratios = (f"preparing over {baseline}", f"end to end over {baseline}", "95 % interval", "p (Holm)")
    compared = [each.corrected_p for each in found if each.ratio is not None]
    return Table(
        title=TITLE,
        before=(
            "Runs that begin with texts: making token ids of them, once, by the stack's own means, is "
            "preparing, and training follows. End to end is both, with all that the stack's command takes "
            "around them. Means with half widths of Student's 95 % intervals; ratios are geometric means of "
            "runs with the same seed, the interval and p those of end to end. "
            f"{corrected_text(compared)}"
        ),
        columns=[
            Column("stack"),
            Column("workers", True),
            Column("epochs", True),
            *(Column(name, True) for name in (*numbers, *ratios)),
            Column("so"),
        ],
        rows=[_row(each) for each in found],
        after=_remarks(found),
    )


def _row(each: FromTexts) -> list[str]:
    cell, ratio = each.cell, each.ratio
    if ratio is None:
        against = [NOTHING] * 6
    else:
        preparing = each.preparing_ratio
        against = [
            str(ratio.n),
            NOTHING if preparing is None else f"{preparing.ratio:.3f}",
            f"{ratio.ratio:.3f}",
            interval_text(ratio.low, ratio.high, 3),
            p_text(each.corrected_p),
            verdict(ratio, each.corrected_p),
        ]
    return [
        stack_text(cell.stack, setting_text(cell.axes, without=CONDITION)),
        str(cell.workers),
        str(cell.axes["epochs"]),
        str(len(each.records)),
        *(_mean(value) for value in (each.preparing_s, each.training_s, each.end_to_end_s)),
        *against,
    ]


def _mean(value: Estimate) -> str:
    return with_half(value.mean, None if value.high is None else value.high - value.mean, 1)


def _remarks(found: Sequence[FromTexts]) -> list[str]:
    told: dict[str, None] = {}
    for each in found:
        for record in each.records:
            assert record.prepared is not None
            workers = counted(each.cell.workers, "worker")
            what = f"{each.cell.stack}, {workers}: {record.prepared.rows:,} reviews, by {record.prepared.by}."
            told[what] = None
    told["What was made was in every run, by its digest, what had been prepared before."] = None
    return list(told)


def from_texts_rows(found: Sequence[FromTexts], baseline: str) -> list[dict[str, Any]]:
    """Every figure of the table as a row of the exported figures."""
    rows: list[dict[str, Any]] = []
    for each in found:
        about = {"section": "from texts"} | cell_fields(each.cell)
        for name, value in (
            ("preparing_s", each.preparing_s),
            ("train_s", each.training_s),
            ("end_to_end_s", each.end_to_end_s),
        ):
            rows.append(
                about
                | {"quantity": name, "value": value.mean, "low": value.low, "high": value.high}
                | {"sd": value.sd, "runs": value.n}
            )
        for name, ratio, p in (
            ("preparing_s", each.preparing_ratio, None),
            ("end_to_end_s", each.ratio, each.corrected_p),
        ):
            if ratio is not None:
                rows.append(
                    about
                    | {"quantity": f"{name} over {baseline}", "value": ratio.ratio, "runs": ratio.n}
                    | {"low": ratio.low, "high": ratio.high, "p": p}
                )
    return rows
