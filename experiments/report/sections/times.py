"""The report's first table and its bars: a row for each cell, with its times as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from experiments.analysis.figures import Accuracy, Cell, value_text
from experiments.analysis.statistics import Estimate, Ratio
from experiments.campaign.campaign import CampaignFile
from experiments.records.record import Record
from experiments.report.chart import Bar, bar_chart
from experiments.report.tables import NOTHING, change_text, interval_text
from experiments.util.words import counted
from training.spec import PretrainedModel


def varying_axes(cells: Sequence[Cell]) -> list[str]:
    """Axes that tell cells apart, besides stack and workers, which are always shown."""
    names = [name for name in (cells[0].axes if cells else {}) if name not in ("stack", "workers")]
    return [
        name for name in names if len({json.dumps(cell.axes[name], sort_keys=True) for cell in cells}) > 1
    ]


def row(cell: Cell, extra: Sequence[str]) -> dict[str, Any]:
    """A cell as the first table shows it, with its values of the axes in `extra`."""
    digests = {record.weights_digest for record in cell.records}
    return {
        "stack": cell.stack,
        "workers": cell.workers,
        "extra": [value_text(cell.axes[name]) for name in extra],
        "runs": f"{len(cell.records)} of {cell.planned}{_throttled(cell.records)}",
        "filled": bool(cell.records),
        "train": _spread(cell.train_s),
        "interval": _interval(cell.train_s),
        "total": _spread(cell.total_s),
        "accuracy": _accuracy(cell.accuracy),
        "overhead_train": _ratio(cell.overhead_train, cell, _percent, " %"),
        "overhead_total": _ratio(cell.overhead_total, cell, _percent, " %"),
        "speed_up": _ratio(cell.speed_up, cell, "{:.2f}".format),
        "efficiency": _efficiency(cell.efficiency),
        "weights": _weights(sorted(digest for digest in digests if digest)),
    }


def times_chart(cells: Sequence[Cell], extra: Sequence[str], baseline: str) -> str:
    """The bars below the first table, as SVG."""
    bars = [
        Bar(
            f"{_label(cell, extra)}, n={cell.train_s.n}",
            cell.train_s.mean,
            cell.total_s.mean,
            cell.stack == baseline,
            _several([record.train_s for record in cell.records if record.train_s is not None]),
        )
        for cell in cells
        if cell.train_s is not None and cell.total_s is not None
    ]
    return bar_chart(bars, "Training time within total time, in seconds")


def _several(times: list[float]) -> list[float]:
    """A single run needs no dot: its bar is it."""
    return times if len(times) > 1 else []


def accuracy_note(cells: Sequence[Cell], campaign: CampaignFile) -> str:
    """How good an accuracy is, and what it may not be held against; empty where there is none."""
    known = [cell.accuracy for cell in cells if cell.accuracy is not None]
    if not known:
        return ""
    count, width = known[0].count, max(accuracy.half_width for accuracy in known)
    text = f"one over {count:,} reviews is good to ±{width:.2f} (95 %), and no better."
    work = campaign.measured[0].specification.work
    if work.data.source == "imdb" and isinstance(work.model, PretrainedModel):
        return text
    why = [campaign.dataset.get("source", {}).get("note", f"The data are {work.data.source}.")]
    if not isinstance(work.model, PretrainedModel):
        why.append("The model starts from scratch.")
    return f"{text} It is not comparable with the dissertation's: {' '.join(why)}"


def _ratio(found: Ratio | None, cell: Cell, shown: Callable[[float], str], unit: str = "") -> str:
    """A ratio with its interval, and how many pairs it comes from where they are fewer than the runs."""
    if found is None:
        return NOTHING
    beside = []
    if found.low is not None and found.high is not None:
        beside.append(f"{shown(found.low)} to {shown(found.high)}")
    if found.n != len(cell.records):
        beside.append(f"n={found.n}")
    return shown(found.ratio) + unit + (f" ({', '.join(beside)})" if beside else "")


def _efficiency(found: Estimate | None) -> str:
    if found is None:
        return NOTHING
    if found.low is None or found.high is None:
        return f"{found.mean * 100:.0f} %"
    return f"{found.mean * 100:.0f} % ({interval_text(found.low * 100, found.high * 100, 0)})"


def _throttled(records: Sequence[Record]) -> str:
    """A mark on a row whose GPUs slowed themselves down: its times are not those of a GPU at full speed."""
    number = sum(any(rank.gpu and rank.gpu.throttled for rank in record.ranks) for record in records)
    return f", {number} throttled" if number else ""


def _weights(digests: Sequence[str]) -> str:
    if not digests:
        return NOTHING
    return digests[0][:8] if len(digests) == 1 else f"{len(digests)} seeds"


def _spread(value: Estimate | None) -> str:
    if value is None:
        return NOTHING
    return f"{value.mean:.1f}" if value.sd is None else f"{value.mean:.1f} ± {value.sd:.1f}"


def _interval(value: Estimate | None) -> str:
    return NOTHING if value is None else interval_text(value.low, value.high, 1)


def _accuracy(value: Accuracy | None) -> str:
    if value is None:
        return NOTHING
    text = f"{value.accuracy:.3f} ± {value.half_width:.3f}"
    return (
        f"{text} ({value.correct} of {value.count})"
        if value.correct is not None
        else f"{text} (mean of {value.n})"
    )


def _percent(ratio: float) -> str:
    return change_text(ratio - 1).removesuffix(" %")


def _label(cell: Cell, extra: Sequence[str]) -> str:
    parts = [cell.stack, counted(cell.workers, "worker")]
    return ", ".join([*parts, *(f"{name} {value_text(cell.axes[name])}" for name in extra)])
