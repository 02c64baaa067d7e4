"""Time to quality: how long the runs trained until they reached the matrix's target."""

from __future__ import annotations

from typing import Final

from experiments.analysis.statistics import FEWEST, MedianTime
from experiments.analysis.to_quality import CellToTarget, SameSeed, ToQuality
from experiments.matrix.target import Target
from experiments.records.record import BY_STANDIN
from experiments.report.formats import P_VALUE, PLAIN, TENTHS, Format, Value, number, plain_interval
from experiments.report.names import setting_text, stack_text
from experiments.report.sections.records import run_count
from experiments.report.tables import Table, columns
from experiments.report.verdict_words import corrected_text, verdict
from experiments.util.words import counted, listed

TITLE: Final = "Time to quality"
NOT_REACHED: Final = "not reached"
RATIO: Final = Format(3)


def to_quality_tables(found: ToQuality | None, baseline: str, doubt: str = "") -> list[Table]:
    """A row for each cell, after a `doubt` about all ratios; no table if the matrix has no target."""
    if found is None:
        return []
    ratios = [each.ratio.p for each in found.cells if each.ratio is not None]
    return [
        Table(
            title=TITLE,
            before=doubt
            + (
                f"The target is {target_text(found.target)}, on the validation split. Seconds are those of "
                "train_s until the end of the first evaluation that reached it. Runs that never reached it "
                "are right-censored: all that counts of them is that it takes longer than their train_s. "
                "The median is Kaplan and Meier's, its 95 % interval Greenwood's, of log(-log), for each row "
                f"alone; fewer than {counted(FEWEST, 'run')} have none. Ratios to {baseline} are geometric "
                "means over the seeds with which both stacks reached the target. "
                f"{corrected_text(ratios) if ratios else ''}"
            ).rstrip(),
            columns=columns(
                "stack",
                "workers",
                "epochs",
                "runs",
                "an epoch, s",
                "reached",
                "after epoch",
                "median, s",
                "95 % interval, s",
                "pairs",
                f"over {baseline}",
                "95 % interval",
                "p (Bonferroni)",
                "verdict",
                words=("stack", "verdict"),
            ),
            rows=[_row(each) for each in found.cells],
            after=_remarks(found),
        )
    ]


def target_text(target: Target) -> str:
    """`accuracy at least 0.75`."""
    name = target.metric.replace("_", " ")
    if target.at_least is not None:
        return f"{name} at least {number(target.at_least, PLAIN)}"
    return f"{name} at most {number(target.at_most, PLAIN)}"


def unusable_target(found: ToQuality | None) -> list[str]:
    """A sentence on a target that no run can be held against; nothing if some can, or none counts yet."""
    if found is None or found.cells or not found.without:
        return []
    there = f"have only {listed(found.metrics)}; name one of these" if found.metrics else "have no metrics"
    return [
        f"There is no time to quality: the matrix's target is {target_text(found.target)}, but the "
        f"evaluations of its runs {there}."
    ]


def _row(each: CellToTarget) -> list[Value | str]:
    cell, ratio, epochs = each.cell, each.ratio, each.epochs
    against: list[Value | str] = [Value(None)] * 5
    if ratio is not None:
        against = [
            run_count(ratio.n),
            Value(ratio.ratio, RATIO),
            plain_interval(ratio.low, ratio.high, RATIO),
            Value(ratio.p, P_VALUE),
            verdict(ratio),
        ]
    return [
        stack_text(cell.stack, cell.settings),
        Value(cell.workers),
        Value(cell.epochs),
        run_count(len(each.runs)),
        Value(BY_STANDIN) if cell.by_standin else Value(each.epoch_s, TENTHS),
        Value(len(epochs)),
        _epochs(epochs),
        *_times(each.time, by_standin=bool(cell.by_standin)),
        *against,
    ]


def _epochs(epochs: list[int]) -> Value:
    """After which epoch the runs reached the target: the first and the last, if these differ."""
    if len(set(epochs)) < 2:
        return Value(epochs[0] if epochs else None)
    return Value(None, low=min(epochs), high=max(epochs))


def _times(time: MedianTime | None, *, by_standin: bool) -> list[Value]:
    if time is None:
        return [Value(BY_STANDIN) if by_standin else Value(None), Value(None)]
    ends = plain_interval(time.low_s, time.high_s, TENTHS)
    if time.median_s is not None:
        return [Value(time.median_s, TENTHS), ends]
    mean = (
        f"restricted mean within {number(time.within_s, TENTHS)} s: {number(time.restricted_s, TENTHS)} s"
        if time.restricted_s is not None
        else ""
    )
    return [Value(NOT_REACHED, note=mean), ends]


def _remarks(found: ToQuality) -> list[str]:
    remarks = []
    if found.without:
        has = "has" if found.without == 1 else "have"
        remarks.append(
            f"{counted(found.without, 'run')} {has} no value of {found.target.metric}, so nothing is said of "
            "when they reached the target."
        )
    return [*remarks, *_on_seeds(found.seeds)]


def _on_seeds(seeds: list[SameSeed]) -> list[str]:
    """Whether the stacks reached the target after the same epoch, seed by seed."""
    apart = [each for each in seeds if not each.alike]
    if not seeds:
        return []
    compared = f"{counted(len(seeds), 'case')} compared"
    if not apart:
        return [
            f"Seed by seed, all stacks reached the target after the same epoch, or never ({compared}): they "
            "can differ only in how long that took."
        ]
    return [
        f"Seed by seed, the stacks did NOT reach the target after the same epoch in {len(apart)} of "
        f"{compared}: "
        f"{'; '.join(map(_apart, apart))}."
    ]


def _apart(each: SameSeed) -> str:
    axes = each.axes
    place = [
        counted(axes["workers"], "worker"),
        counted(axes["epochs"], "epoch"),
        setting_text(axes),
        f"seed {axes['seed']}",
    ]
    epochs = [
        f"{stack} never" if epoch is None else f"{stack} after epoch {epoch}"
        for stack, epoch in each.epochs.items()
    ]
    return f"{', '.join(filter(None, place))}: {listed(epochs)}"
