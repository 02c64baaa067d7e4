"""The report's plots, each as PNG and SVG, and narrow for phones: the same figures give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from textwrap import fill
from typing import Any, Final

from experiments.analysis.analysis import Analysis
from experiments.analysis.dissertation import SHORT, Dissertation
from experiments.analysis.dissertation_figures import main_length
from experiments.analysis.drift import Drift
from experiments.analysis.figures import Cell, phase_names
from experiments.analysis.growth import Growth, Quantity
from experiments.report.names import setting_text, stack_text, value_text
from experiments.report.narrow import (
    NARROW,
    WIDE,
    fold,
    in_rows,
    is_narrow,
    legend_beside,
    legend_of_all,
    legend_within,
    side_by_side,
)
from experiments.report.sections.growth import QUANTITIES
from experiments.report.sections.ladders import draw_waterfalls
from experiments.util.words import counted

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")
HATCHES: Final = ("", "//", "xx", "..")
INCHES_A_BAR: Final = 0.3
DOT: Final = 14  # points², of one run
TICKS: Final = (1, 1.5, 2, 3, 5, 7)  # of a logarithmic axis, in each power of ten
WIDTH: Final = 55  # characters that fit into a title of half the width
FORMATS: Final = {"png": {"Software": None}, "svg": {"Date": None}}  # what would differ from day to day
DARK: Final = """
@media (prefers-color-scheme: dark) {
  svg { fill: #e4e8ec }
  [style*="stroke: #000000"] { stroke: #e4e8ec !important }
  [style*="fill: #ffffff"] { fill: #14171b !important }
  [style*="stroke: #ffffff"] { stroke: #14171b !important }
  [style*="stroke: #dddddd"] { stroke: #353c45 !important }
}
"""
"""For readers who prefer dark, an SVG replaces black and white with the page's colours; hues stay."""
STYLE: Final[Any] = {
    "svg.hashsalt": "trainbed",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.axisbelow": True,
}

Drawing = Callable[[Any], None]
"""Draws into an empty figure of Matplotlib, of the width WIDE or NARROW, whose height it sets."""


def plots_of(analysis: Analysis) -> dict[str, bytes]:
    """Every plot that there are figures for, by file name."""
    drawn = drawings_of(analysis)
    return {name: data for kind, draw in drawn.items() for name, data in render(kind, draw).items()}


def narrow_plots_of(analysis: Analysis) -> dict[str, bytes]:
    """The same for a phone, as SVG alone."""
    return {f"{kind}.svg": render_narrow(draw) for kind, draw in drawings_of(analysis).items()}


def drawings_of(analysis: Analysis) -> dict[str, Drawing]:
    """What draws each of them, by its name."""
    cells = [cell for cell in analysis.figures.cells if cell.train_s is not None]
    drawn: dict[str, Drawing] = {}
    simulated = analysis.figures.campaign.simulated
    if cells:
        beside = None if simulated else analysis.dissertation
        drawn["times"] = lambda figure: _times(figure, cells, beside)
        drawn["phases"] = lambda figure: _phases(figure, cells)
    if not simulated and any(len(record.epochs) > 1 for cell in cells for record in cell.timed):
        drawn["curves"] = lambda figure: _curves(figure, cells)
    if whole := [each for each in analysis.waterfalls if each.steps]:
        drawn["why"] = lambda figure: draw_waterfalls(figure, whole)
    if analysis.growth:
        drawn["growth"] = lambda figure: _growth(figure, analysis.growth)
    if analysis.drift.runs:
        stacks = list(dict.fromkeys(cell.stack for cell in cells))
        drawn["drift"] = lambda figure: _drift(figure, analysis.drift, stacks)
    return drawn


def render(kind: str, draw: Drawing) -> dict[str, bytes]:
    """A plot as files by name, for the page and for print."""
    files = {f"{kind}.{suffix}": data for suffix, data in _saved(draw, WIDE, FORMATS).items()}
    files[f"{kind}.svg"] = _with_dark_colours(files[f"{kind}.svg"])
    return files


def render_narrow(draw: Drawing) -> bytes:
    """A plot as SVG, for a phone."""
    return _with_dark_colours(_saved(draw, NARROW, ["svg"])["svg"])


def figure_of(draw: Drawing, width: float) -> Any:
    """The figure that a plot is saved from. One of the width NARROW has its long texts in several lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4), layout="constrained")
    draw(figure)
    if is_narrow(figure):
        fold(figure)
    return figure


def _saved(draw: Drawing, width: float, suffixes: Iterable[str]) -> dict[str, bytes]:
    """A plot by suffix."""
    import matplotlib as mpl

    files = {}
    with mpl.rc_context(STYLE):
        figure = figure_of(draw, width)
        for suffix in suffixes:
            out = io.BytesIO()
            figure.savefig(out, format=suffix, dpi=120, metadata=FORMATS[suffix])
            files[suffix] = out.getvalue()
    return files


def _with_dark_colours(svg: bytes) -> bytes:
    head, end, rest = svg.partition(b"</style>")
    assert end, "Matplotlib writes a style sheet into every SVG"
    return head + DARK.encode() + end + rest


def _times(figure: Any, cells: Sequence[Cell], reference: Dissertation | None) -> None:
    """Figure 5.1: training time by stack and number of workers, here and in the dissertation.

    Without a `reference`, what was run here stands beside no real training.
    """
    here, *others = side_by_side(figure, 1 if reference is None else 2)
    length = main_length({cell.epochs for cell in cells})
    chosen = [cell for cell in cells if cell.epochs == length]
    chosen, setting = _first_settings(chosen)
    stacks = list(dict.fromkeys(cell.stack for cell in chosen))
    workers = sorted({cell.workers for cell in chosen})
    # The dissertation's panel has its six bars, whatever was run here.
    published = [] if reference is None else [run for run in reference.runs if run.epochs == SHORT]
    there_stacks = list(dict.fromkeys([*stacks, *(run.stack for run in published)]))
    there_workers = sorted({run.workers for run in published})

    def bars(
        axes: Any,
        title: str,
        value: Callable[[str, int], tuple[float, float, int] | None],
        singles: Callable[[str, int], list[float]],
        stacks: Sequence[str],
        workers: Sequence[int],
    ) -> None:
        width = 0.8 / len(workers)
        for at, number in enumerate(workers):
            found = [(place, value(stack, number)) for place, stack in enumerate(stacks)]
            known = [(place, each) for place, each in found if each is not None]
            drawn = axes.bar(
                [place + (at - (len(workers) - 1) / 2) * width for place, _ in known],
                [each[0] for _, each in known],
                width,
                yerr=[each[1] for _, each in known] if any(each[1] for _, each in known) else None,
                capsize=3,
                color=COLOURS[at % len(COLOURS)],
                hatch=HATCHES[at % len(HATCHES)],
                edgecolor="white",
                label=counted(number, "worker"),
            )
            _dots(axes, drawn, [singles(stacks[place], number) for place, _ in known])
            axes.bar_label(drawn, [f"n={each[2]}" for _, each in known], padding=1, fontsize=7)
        axes.margins(y=0.08)
        axes.set_xticks(range(len(stacks)), stacks)
        axes.set_ylabel("training time, s")
        axes.set_title(title)
        axes.grid(axis="y", color="#dddddd")
        legend_within(axes)

    def measured(stack: str, number: int) -> tuple[float, float, int] | None:
        cell = next((c for c in chosen if (c.stack, c.workers) == (stack, number)), None)
        if cell is None or cell.train_s is None:
            return None
        high = cell.train_s.high
        return cell.train_s.mean, 0.0 if high is None else high - cell.train_s.mean, cell.train_s.n

    def each_run(stack: str, number: int) -> list[float]:
        cell = next(c for c in chosen if (c.stack, c.workers) == (stack, number))
        times = [record.train_s for record in cell.records if record.train_s is not None]
        return times if len(times) > 1 else []

    def printed(stack: str, number: int) -> tuple[float, float, int] | None:
        run = None if reference is None else reference.run(stack, number, SHORT)
        return (run.seconds, 0.0, run.of_runs) if run else None

    spread = any(cell.train_s is not None and cell.train_s.high is not None for cell in chosen)
    intervals = " (95 % intervals)" if spread else ""
    bars(here, f"here, {counted(length, 'epoch')}{intervals}{setting}", measured, each_run, stacks, workers)
    for there in others:
        title = f"the dissertation, {SHORT} epochs (figure 5.1)"
        bars(there, title, printed, lambda *_: [], there_stacks, there_workers)


def _dots(axes: Any, bars: Sequence[Any], times: Sequence[Sequence[float]]) -> None:
    """One dot for every run, beside the line of its bar's interval."""
    dots = [
        (bar.get_x() + bar.get_width() / 4, seconds)
        for bar, each in zip(bars, times, strict=True)
        for seconds in each
    ]
    if dots:
        axes.scatter(*zip(*dots, strict=True), s=DOT, color="#ffffff", edgecolors="#000000", zorder=3)


def _first_settings(cells: Sequence[Cell]) -> tuple[list[Cell], str]:
    """The cells with each number of workers' first setting, and a line that says so if any are left out."""
    first: dict[int, str] = {}
    for cell in cells:
        first.setdefault(cell.workers, setting_text(cell.settings))
    shown = [cell for cell in cells if setting_text(cell.settings) == first[cell.workers]]
    if len(shown) == len(cells):
        return shown, ""
    names = [name for name, value in cells[0].axes.items() if any(each.axes[name] != value for each in cells)]
    settings = {setting_text({name: cell.axes[name] for name in names}) for cell in shown}
    only = settings.pop() if len(settings) == 1 else "the first setting for each number of workers"
    return shown, f"\n{fill(f'only {only}', WIDTH)}"


def _phases(figure: Any, cells: Sequence[Cell]) -> None:
    """Where the time of every cell goes, with the total of each of its runs as a dot."""
    shown = [cell for cell in cells if cell.phases is not None]
    names = [_label(cell, shown) for cell in shown]
    if not is_narrow(figure):  # where they are folded with all others
        names = [fill(name, WIDTH) for name in names]
    lines = max((1 + name.count("\n") for name in names), default=1)
    bar = INCHES_A_BAR * max(1, lines / 2)  # it has room for two lines
    figure.set_figheight(max(figure.get_figheight(), 1.5 + bar * len(shown)))
    axes = figure.subplots()
    left = [0.0] * len(shown)
    for at, phase in enumerate(phase_names(shown)):
        seconds = [max(0.0, (cell.phases or {}).get(phase, 0.0)) for cell in shown]
        axes.barh(
            range(len(shown)),
            seconds,
            left=left,
            color=COLOURS[at % len(COLOURS)],
            hatch=HATCHES[at // len(COLOURS)],
            edgecolor="white",
            label=phase.replace("_", " "),
        )
        left = [before + more for before, more in zip(left, seconds, strict=True)]
    several = [(at, cell.timed) for at, cell in enumerate(shown) if len(cell.timed) > 1]
    dots = [(each.total_s, at) for at, records in several for each in records if each.total_s is not None]
    if dots:
        axes.scatter(*zip(*dots, strict=True), s=DOT, color="#ffffff", edgecolors="#000000", zorder=3)
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.set_xlabel("seconds on the slowest rank, mean")
    axes.set_title("where the time goes")
    legend_beside(axes)


def _curves(figure: Any, cells: Sequence[Cell]) -> None:
    """Loss and the workload's metric by epoch, means over the seeds, all stacks overlaid."""
    losses, qualities = side_by_side(figure, 2)
    stacks = list(dict.fromkeys(cell.stack for cell in cells))
    for at, cell in enumerate(cells):
        # Equal work gives equal curves: those below are drawn wider to stay visible.
        below = len(stacks) - 1 - stacks.index(cell.stack)
        curves = (losses, cell.curve("train_loss")), (qualities, cell.curve(cell.metric))
        for axes, curve in curves:
            axes.plot(
                list(curve),
                list(curve.values()),
                color=COLOURS[at % len(COLOURS)],
                linestyle=("-", "--", ":", "-.")[at % 4],
                marker="os^v"[at % 4],
                markersize=4 + 3 * below,
                linewidth=1.5 + 3 * below,
                alpha=0.4 if below else 1,
                label=_label(cell, cells),
            )
    losses.set_title("training loss")
    names = dict.fromkeys(cell.metric.replace("_", " ") for cell in cells)
    qualities.set_title(f"validation {', '.join(names)}")
    for axes in (losses, qualities):
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(color="#dddddd")
    # Beside the axes or below them, where it hides no line.
    legend_of_all(figure, losses)


def _drift(figure: Any, drift: Drift, stacks: Sequence[str]) -> None:
    """Every run over the mean of its cell, by when it began, with boots of nodes and later commands."""
    axes = figure.subplots()
    for at, stack in enumerate(stacks):
        of_stack = [run for run in drift.runs if run.stack == stack]
        if not of_stack:
            continue
        axes.scatter(
            [run.hours for run in of_stack],
            [run.ratio for run in of_stack],
            s=2 * DOT,
            color=COLOURS[at % len(COLOURS)],
            marker="os^v"[at % 4],
            label=f"{stack}, n={len(of_stack)}",
            zorder=3,
        )
    marks = (
        ("nodes booted", "--", [boot.hours for boot in drift.boots]),
        ("resumed", ":", drift.resumed),
    )
    for label, style, moments in marks:
        for at, hours in enumerate(moments):
            axes.axvline(hours, color="#000000", linestyle=style, linewidth=1, label="" if at else label)
    axes.set_xlabel("hours from the campaign's beginning to the run's")
    axes.set_ylabel("train_s over the mean of its cell")
    axes.set_title("did times drift?")
    axes.grid(color="#dddddd")
    legend_beside(axes)


def _growth(figure: Any, found: Sequence[Growth]) -> None:
    """A step's time by each quantity that varies alone, with the model's and what that says of more ranks."""
    every = dict.fromkeys(curve.quantity for each in found for curve in each.curves)
    panels = dict(zip(every, in_rows(figure, len(every)), strict=True))
    for at, each in enumerate(found):
        name, colour, marker = (
            stack_text(each.stack, each.settings),
            COLOURS[at % len(COLOURS)],
            "os^v"[at % 4],
        )
        for curve in each.curves:
            axes = panels[curve.quantity]
            runs = [(x, ms) for x, point in curve.points for ms in point.runs_ms]
            axes.scatter(*zip(*runs, strict=True), s=DOT, color=colour, marker=marker, label=name, zorder=3)
            modelled = [(x, point.model_ms) for x, point in curve.points if point.model_ms is not None]
            if modelled:
                axes.plot(*zip(*modelled, strict=True), "--", color=colour, label=f"{name}, by the model")
            if curve.quantity == "ranks":
                _more_ranks(axes, each, colour)
    for quantity, axes in panels.items():
        _log_axes(axes, quantity)
        axes.set_xlabel(QUANTITIES[quantity])
        axes.set_ylabel("step, ms")
        axes.grid(color="#dddddd")
    ends = [axes.get_ylim() for axes in panels.values()]
    for axes in panels.values():
        axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
    legend_of_all(figure, panels.get("ranks", next(iter(panels.values()))))


def _log_axes(axes: Any, quantity: Quantity) -> None:
    """Logarithmic axes, with plain numbers; thousands of a quantity are k, and millions M."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, ScalarFormatter

    doubles = quantity in ("length", "batch", "ranks")
    axes.set_xscale("log", base=2 if doubles else 10)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=TICKS))
    if not doubles:
        axes.xaxis.set_major_locator(LogLocator(subs=TICKS[::2]))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_major_formatter(ScalarFormatter() if quantity == "link" else EngFormatter(sep=""))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())


def _more_ranks(axes: Any, each: Growth, colour: str) -> None:
    """What the model says of more ranks on the link of the others, with intervals."""
    there = [found for found in each.predictions if found.link_gbit == each.base_gbit]
    if not there:
        return
    times = [found.step_ms for found in there]
    axes.errorbar(
        [found.ranks for found in there],
        [time.value for time in times],
        yerr=[[time.value - time.low for time in times], [time.high - time.value for time in times]],
        fmt="x",
        capsize=3,
        color=colour,
        label=f"{stack_text(each.stack, each.settings)}, predicted",
    )


def _label(cell: Cell, cells: Sequence[Cell]) -> str:
    rest = [
        f"{name} {value_text(value)}"
        for name, value in cell.axes.items()
        if name not in ("stack", "workers", "epochs") and any(other.axes[name] != value for other in cells)
    ]
    of = f"n={len(cell.timed)}"
    return ", ".join([f"{cell.stack}, {cell.workers} w, {cell.axes['epochs']} e", *rest, of])
