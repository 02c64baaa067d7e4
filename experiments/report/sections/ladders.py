"""The ladders as a table, as rows of figures, and as waterfalls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from experiments.analysis.ladders import Step, Waterfall
from experiments.analysis.statistics import Difference
from experiments.report.tables import MINUS, NOTHING, PHASE_NAMES, Column, Table, corrected_text, p_text

COSTS, SAVES, UNKNOWN, WHOLE = "#d55e00", "#009e73", "#bbbbbb", "#0072b2"  # Okabe and Ito's, and a grey
INCHES_A_BAR: Final = 0.36


def why_table(found: Sequence[Waterfall]) -> Table:
    """How much of an overhead comes from what."""
    numbers = (
        "pairs",
        "seconds",
        "95 % interval, s",
        "% of the last rung measured",
        "95 % interval, %",
        "p (Holm)",
    )
    rows = [
        row
        for waterfall in found
        for row in (
            *(_row(waterfall, step) for step in waterfall.steps),
            *([_row(waterfall, waterfall.whole, _whole_mark(waterfall))] if waterfall.whole else []),
        )
    ]
    return Table(
        title="Why",
        before=(
            "From each rung of a ladder to the next: how many seconds of train_s that change takes away, as "
            "means of the differences of runs with the same seed, with Student's intervals. "
            f"{corrected_text([step.corrected_p for each in found for step in each.every_step])} "
            "The phases that changed most are means, without a claim of their own."
        ),
        columns=[
            Column("ladder"),
            Column("from"),
            Column("to"),
            *(Column(name, True) for name in numbers),
            Column("phases that changed most, s"),
            Column("so, what is removed"),
        ],
        rows=rows,
        after=[
            f'{waterfall.name}: the rung "{label}" is left out. {why}'
            for waterfall in found
            for label, why in waterfall.left_out
        ]
        + [
            f"{waterfall.name}: its rungs have not all the same seeds, so the steps need not add up to the "
            "difference of its ends."
            for waterfall in found
            if len({step.seconds.n for step in waterfall.every_step}) > 1
        ],
    )


def _whole_mark(waterfall: Waterfall) -> str:
    return "all of it: " if waterfall.complete else "all that was measured: "


def why_rows(found: Sequence[Waterfall]) -> list[dict[str, Any]]:
    """One row for each step's seconds, its share of the last rung, and the phases that changed most."""
    rows: list[dict[str, Any]] = []
    for waterfall in found:
        about = {"section": "why", "workers": waterfall.about["workers"], "epochs": waterfall.about["epochs"]}
        for step in waterfall.every_step:
            name = f"{waterfall.ladder}: {step.above} > {step.below}"
            p = {"p": step.corrected_p}
            rows.append(about | {"quantity": f"{name}, s"} | _figures(step.seconds) | p)
            if step.percent is not None:
                rows.append(about | {"quantity": f"{name}, %"} | _figures(step.percent) | p)
            rows += [
                about | {"quantity": f"{name}, {phase}, s", "value": seconds, "runs": step.seconds.n}
                for phase, seconds in step.phases
            ]
    return rows


def _figures(found: Difference) -> dict[str, Any]:
    return {"value": found.mean, "low": found.low, "high": found.high, "runs": found.n}


def _row(waterfall: Waterfall, step: Step, mark: str = "") -> list[str]:
    return [
        waterfall.name,
        mark + step.above,
        step.below,
        str(step.seconds.n),
        f"{step.seconds.mean:+.2f}",
        _interval(step.seconds, 2),
        NOTHING if step.percent is None else f"{step.percent.mean:+.1f}",
        NOTHING if step.percent is None else _interval(step.percent, 1),
        p_text(step.corrected_p),
        ", ".join(f"{PHASE_NAMES.get(name, name)} {seconds:+.2f}" for name, seconds in step.phases),
        step.verdict,
    ]


def _interval(found: Difference, digits: int) -> str:
    if found.low is None or found.high is None:
        return NOTHING
    return f"{found.low:+.{digits}f} to {found.high:+.{digits}f}"


def draw_waterfalls(figure: Any, found: Sequence[Waterfall]) -> None:
    """Each ladder from what its first rung takes longer than its last down to nothing, step by step."""
    heights = [len(waterfall.steps) + 2 for waterfall in found]
    figure.set_size_inches(9, sum(heights) * INCHES_A_BAR + 0.9 * len(found))
    every = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, waterfall in zip(every, found, strict=True):
        _draw(axes, waterfall)


def _draw(axes: Any, waterfall: Waterfall) -> None:
    (first, start), (last, end) = waterfall.rungs[0], waterfall.rungs[-1]
    # Each step is the mean of its own pairs: where a rung lacks a seed, only their sum ends at the last rung.
    left = sum(step.seconds.mean for step in waterfall.steps)
    axes.barh(0, left, color=WHOLE)
    _write(axes, max(left, 0.0), 0, f"{start.mean:.2f} s")
    labels = [first]
    for at, step in enumerate(waterfall.steps, start=1):
        seconds = step.seconds
        colour = UNKNOWN if not step.certain else COSTS if seconds.mean > 0 else SAVES
        half = None if seconds.low is None else seconds.mean - seconds.low
        axes.barh(at, -seconds.mean, left=left, color=colour, xerr=half, capsize=3)
        claim = "" if step.certain else ", can't tell" if half is not None else ", one pair"
        beyond = max(left, left - seconds.mean + (half or 0.0))
        _write(axes, beyond, at, f"{-seconds.mean:+.2f} s{claim}".replace("-", MINUS))
        labels.append(f"\N{RIGHTWARDS ARROW} {step.below}")
        left -= seconds.mean
    _write(axes, 0.0, len(labels), f"{end.mean:.2f} s")
    labels.append(last)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    low, high = axes.dataLim.intervalx
    room = (high - low) or 1.0
    axes.set_xlim(low - 0.05 * room, high + 0.34 * room)  # on the right is what is written beside the bars
    axes.axvline(0, color="#000000", linewidth=0.8)
    pairs = sorted({step.seconds.n for step in waterfall.steps})
    count = " to ".join(str(each) for each in dict.fromkeys((pairs[0], pairs[-1])))
    axes.set_title(f"{waterfall.name} ({count} pair{'' if pairs == [1] else 's'} a step)", loc="left")
    axes.set_xlabel("train_s over the last rung's, s; what each step takes away, with 95 % intervals")
    axes.grid(axis="x", color="#dddddd")


def _write(axes: Any, x: float, y: int, text: str) -> None:
    axes.annotate(text, (x, y), xytext=(5, 0), textcoords="offset points", va="center")
