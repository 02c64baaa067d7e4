"""The report's first table: a row for each cell, with its times, its accuracy and its comparisons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from experiments.analysis.figures import Cell, Figures
from experiments.analysis.statistics import Estimate, Ratio
from experiments.campaign.campaign import CampaignFile
from experiments.records.record import BY_STANDIN, Record
from experiments.report.data_words import data_words
from experiments.report.formats import (
    CHANGE,
    GROUPED,
    PERCENT,
    PLAIN,
    RATIO,
    TENTHS,
    Format,
    Value,
    interval,
    number,
    plain_interval,
)
from experiments.report.names import value_text
from experiments.report.sections.records import TITLE as RECORDS
from experiments.report.tables import Column, Table
from experiments.util.words import counted, listed

TITLE: Final = "Times, quality, weights"
SHARE: Final = Format(3)  # of samples classified correctly
OF_THE_LOOP: Final = (
    "train_s: seconds inside the training function, on the slowest rank. Compare only this with the "
    "dissertation's times."
)
OF_PROGRAMS: Final = (
    "train_s: seconds from the program's start to its end, on the slowest rank; its imports are among them."
)


def times_table(figures: Figures) -> Table:
    """Every cell of the campaign."""
    baseline, axes = figures.campaign.baseline, varying_axes(figures.cells)
    metric = _metric(figures)
    words = {"stack", *axes, metric, "weights"}
    names = ["stack", "workers", *axes, "runs", "train_s", "95 % interval", "total_s", metric]
    names += [f"{clock} over {baseline}" for clock in ("train_s", "total_s")]
    names += ["speed-up", "efficiency", "weights"]
    return Table(
        title=TITLE,
        before="",
        columns=[Column(name, name not in words) for name in names],
        rows=[_row(cell, axes) for cell in figures.cells],
        after=_remarks(figures),
    )


def varying_axes(cells: Sequence[Cell]) -> list[str]:
    """Axes that tell cells apart, besides stack and workers, which are always shown."""
    names = [name for name in (cells[0].axes if cells else {}) if name not in ("stack", "workers")]
    return [
        name for name in names if len({json.dumps(cell.axes[name], sort_keys=True) for cell in cells}) > 1
    ]


def _row(cell: Cell, axes: Sequence[str]) -> list[Value | str]:
    train, share = cell.train_s, cell.efficiency
    return [
        cell.stack,
        Value(cell.workers),
        *(_axis_value(cell.axes[name]) for name in axes),
        Value(
            len(cell.records),
            Format(unit=f" of {cell.planned}{_marks(cell)}"),
            section=RECORDS if cell.records else "",
        ),
        _seconds(cell, train),
        plain_interval(train.low if train else None, train.high if train else None, TENTHS),
        _seconds(cell, cell.total_s),
        _quality(cell),
        _ratio(cell.overhead_train, cell, CHANGE, 1),
        _ratio(cell.overhead_total, cell, CHANGE, 1),
        _ratio(cell.speed_up, cell, RATIO),
        Value(share.mean, PERCENT, low=share.low, high=share.high) if share else Value(None),
        Value(_weights(cell.records), kind="code"),
    ]


def _axis_value(value: object) -> Value:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Value(value, PLAIN)
    return Value(value_text(value))


def _seconds(cell: Cell, found: Estimate | None) -> Value:
    if found is None:
        return Value(BY_STANDIN) if cell.by_standin else Value(None)
    note = f"n={found.n}" if cell.by_standin else ""
    return Value(found.mean, TENTHS, spread=found.sd, note=note)


def _quality(cell: Cell) -> Value:
    found, share = cell.quality, cell.accuracy
    if found is None:
        return Value(None)
    counted = share is not None and share.correct is not None and cell.metric == "accuracy"
    note = f"{share.correct} of {share.count}" if share is not None and counted else ""
    return Value(found.mean, SHARE, spread=found.sd, note=note)


def _metric(figures: Figures) -> str:
    """The metric by which people judge the campaign's models, in words."""
    return data_words(figures.campaign).metric


def _ratio(found: Ratio | None, cell: Cell, form: Format, less: float = 0) -> Value:
    """A ratio minus `less`, with its number of pairs if there are fewer pairs than runs."""
    if found is None:
        return Value(None)
    low, high = (None if end is None else end - less for end in (found.low, found.high))
    note = "" if found.n == len(cell.records) else f"n={found.n}"
    return Value(found.ratio - less, form, low=low, high=high, note=note)


def _marks(cell: Cell) -> str:
    """Marks on a row whose times are not those of plain runs of its stack, or whose GPUs slowed down."""
    throttled = sum(any(rank.gpu and rank.gpu.throttled for rank in record.ranks) for record in cell.records)
    marks = ["disturbed"] if cell.disturbed else []
    marks += [f"{len(cell.by_standin)} by a stand-in"] if cell.by_standin else []
    marks += [f"{throttled} throttled"] if throttled else []
    return "".join(f", {mark}" for mark in marks)


def _weights(records: Sequence[Record]) -> str | None:
    digests = sorted({record.weights_digest for record in records if record.weights_digest})
    if not digests:
        return None
    return digests[0][:8] if len(digests) == 1 else f"{len(digests)} seeds"


def _remarks(figures: Figures) -> list[str]:
    filled = [cell for cell in figures.cells if cell.records]
    steps = {
        None: "",
        True: " The workers of a run share one batch, so the number of steps does not depend on how many "
        "workers there are.",
        False: " Several workers process several batches at once, so they take fewer steps: the training "
        "problem changes with their number.",
    }[figures.same_steps]
    accuracy, metric = accuracy_note(filled, figures.campaign), _metric(figures)
    return [
        OF_PROGRAMS if figures.campaign.has_own_loop else OF_THE_LOOP,
        "total_s: seconds from submission until the run's data was on the controller.",
        f"train_s, total_s, {metric}: ± is the standard deviation over the seeds.",
        "Runs: how many of the planned runs a row's figures come from. Ratios are geometric means over pairs "
        "of runs with the same seed, with 95 % intervals that hold for a whole column at once; n is the "
        "number of pairs, if there are fewer pairs than runs.",
        "Speed-up: one worker's train_s divided by this row's, on the same stack with the same number of "
        f"epochs.{steps}",
        "Weights: the first eight digits of the digest of the trained weights.",
        *([f"Accuracy: {accuracy}"] if accuracy else []),
        *adopted_remark(figures),
        *disturbed_remark(figures),
        *standin_remark(figures),
        *compiled_remark(figures),
        *(
            ["Every figure is from a single run: there is no spread, and a small difference may be chance."]
            if filled and all(len(cell.records) == 1 for cell in filled)
            else []
        ),
    ]


def adopted_remark(figures: Figures) -> list[str]:
    """Which runs were made in earlier campaigns; nothing if none were."""
    adopted = [each for each in figures.counting if each.campaign != figures.campaign.name]
    if not adopted:
        return []
    names = listed(sorted({each.campaign for each in adopted}))
    return [
        f"Adopted: {counted(len(adopted), 'run')} of {len(figures.counting)} were made in {names}, with the "
        "same code, environment and nodes, but at another time than the rest."
    ]


def disturbed_remark(figures: Figures) -> list[str]:
    """Which runs are in no time; nothing if none is disturbed."""
    disturbed = [why for record in figures.counting if (why := record.disturbed)]
    if not disturbed:
        return []
    return [
        f"Disturbed: {len(disturbed)} of {counted(len(figures.counting), 'run')}, by "
        f"{listed(sorted(set(disturbed)))}. Their times are in no mean and no comparison; their weights and "
        "metrics count."
    ]


def standin_remark(figures: Figures) -> list[str]:
    """Which runs a stand-in made, and that they have no times; nothing if none did."""
    made = figures.by_standin
    if not made:
        return []
    stacks = sorted({record.specification.stack for record in made})
    return [
        f"Stand-in: {len(made)} of {counted(len(figures.counting), 'run')}, under the name of "
        f"{listed(stacks)}. {' '.join(sorted({record.standin or '' for record in made}))} Their times are in "
        "no table and no plot; their weights and metrics count."
    ]


def compiled_remark(figures: Figures) -> list[str]:
    """How much of train_s went into compiling models; nothing if none was."""
    timed = [record.ranks for record in figures.counting if record.timed]
    found = [compiled for ranks in timed if (compiled := [rank.compiled for rank in ranks if rank.compiled])]
    if not found:
        return []
    slowest = [max(each.seconds for each in ranks) for ranks in found]
    breaks = sorted({reason for ranks in found for each in ranks for reason in each.breaks})
    parted = f" Not all of the model was compiled: {'; '.join(breaks)}." if breaks else ""
    ends = interval(min(slowest), max(slowest), TENTHS) if len(slowest) > 1 else number(slowest[0], TENTHS)
    return [
        f"Compiled: {len(found)} of {counted(len(figures.counting), 'run')}. Of their train_s, compiling "
        f"took {ends} s on the slowest rank; a longer training has as much of it once.{parted}"
    ]


def accuracy_note(cells: Sequence[Cell], campaign: CampaignFile) -> str:
    """How precise an accuracy is, and what it must not be compared with; empty without one."""
    known = [cell.accuracy for cell in cells if cell.accuracy is not None]
    if not known:
        return ""
    width = number(max(accuracy.half_width for accuracy in known), RATIO)
    counts = list(dict.fromkeys(number(accuracy.count, GROUPED) for accuracy in known))
    good = f"good to ±{width}{' or less' if len(counts) > 1 else ''} (95 %)"
    text = f"one evaluation of {listed(counts, 'or')} samples is {good}, however many seeds share them."
    work = campaign.measured[0].specification.work
    sources = {getattr(data, "source", None) for data in campaign.data_of_runs.values()}
    init = work.model.model_dump(mode="json").get("init")
    if (work.workload, sources, init) == ("text-classification", {"imdb"}, "pretrained"):
        return text
    words = data_words(campaign)
    reasons = [words.notes or f"The data are {words.name}."]
    if init == "scratch":
        reasons.append("The model starts from scratch.")
    return f"{text} It is not comparable with the dissertation's: {' '.join(reasons)}"
