"""Plots for a phone: as wide as its page, so that letters keep their size; nothing stands beside the axes."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any, Final

WIDE, NARROW = 9.0, 4.4  # inches
INCHES_A_PANEL: Final = 3.2
INCHES_A_LINE: Final = 0.18
IN_A_ROW: Final = 3  # panels of a wide figure
TITLE, LABEL, LEGEND = 32, 22, 40  # characters that fit into a line of a narrow plot


def is_narrow(figure: Any) -> bool:
    """Whether a figure is for a phone."""
    return bool(figure.get_figwidth() < WIDE)


def side_by_side(figure: Any, panels: int) -> Sequence[Any]:
    """Axes of panels beside one another; in a narrow figure below one another."""
    if not is_narrow(figure):
        return list(figure.subplots(1, panels, squeeze=False)[0])
    figure.set_figheight(INCHES_A_PANEL * panels)
    return list(figure.subplots(panels, 1, squeeze=False)[:, 0])


def in_rows(figure: Any, panels: int) -> Sequence[Any]:
    """Axes of panels in rows of up to three; in a narrow figure below one another."""
    if is_narrow(figure) or panels <= IN_A_ROW:
        return side_by_side(figure, panels)
    rows = -(-panels // IN_A_ROW)
    figure.set_figheight(INCHES_A_PANEL * rows)
    every = list(figure.subplots(rows, IN_A_ROW, squeeze=False).flat)
    for empty in every[panels:]:
        empty.remove()
    return every[:panels]


def legend_within(axes: Any) -> None:
    """A legend within the axes; in a narrow figure, where it would hide bars, below them."""
    below = {"ncols": 3, "loc": "upper center", "bbox_to_anchor": (0.5, -0.1)}
    axes.legend(frameon=False, **(below if is_narrow(axes.get_figure()) else {}))


def legend_beside(axes: Any) -> None:
    """A legend beside the axes; in a narrow figure below them."""
    figure = axes.get_figure()
    if not is_narrow(figure):
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return
    handles, labels = axes.get_legend_handles_labels()
    figure.set_figheight(figure.get_figheight() + INCHES_A_LINE * ((len(labels) + 1) // 2))
    figure.legend(handles, labels, frameon=False, ncols=2, loc="outside lower left")


def legend_of_all(figure: Any, axes: Any) -> None:
    """A legend of one of several panels for all, at the right; in a narrow figure below them."""
    handles, labels = axes.get_legend_handles_labels()
    narrow = is_narrow(figure)
    if narrow:
        figure.set_figheight(figure.get_figheight() + INCHES_A_LINE * len(labels))
    place = "outside lower left" if narrow else "outside right center"
    figure.legend(handles, labels, frameon=False, loc=place)


def fold(figure: Any) -> None:
    """Puts titles, labels and names into as many lines as they need in a narrow figure."""
    from matplotlib.ticker import FixedLocator

    lines = 1
    for axes in figure.axes:
        for place in ("left", "center"):
            axes.set_title(_folded(axes.get_title(place), TITLE), loc=place)
        axes.set_xlabel(_folded(axes.get_xlabel(), TITLE))
        if isinstance(axes.yaxis.get_major_locator(), FixedLocator):  # its ticks have names
            names = [_folded(each.get_text(), LABEL) for each in axes.get_yticklabels()]
            axes.set_yticks(axes.get_yticks(), names)
            lines = max([lines, *(1 + name.count("\n") for name in names)])
    for legend in figure.legends:
        for each in legend.get_texts():
            each.set_text(_folded(each.get_text(), LEGEND))
    figure.set_figheight(figure.get_figheight() * max(1, lines / 2))  # a bar has room for two lines


def _folded(text: str, width: int) -> str:
    return "\n".join(fill(line, width) for line in text.splitlines())
