"""Plots for a phone: nothing in them is cropped, bars keep their room, and the page has them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.analysis.analysis import analyse
from experiments.analysis.answer import answers
from experiments.campaign.campaign import open_campaign
from experiments.report.answer import write_answer
from experiments.report.answer_plots import answer_drawings
from experiments.report.narrow import NARROW, WIDE
from experiments.report.plots import STYLE, Drawing, drawings_of, figure_of
from experiments.report.writer import write_report
from tests.unit.experiments.analysis.test_answer import analysed, costs
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_growth import grown
from tests.unit.experiments.made_up_ladder import ladder
from tests.unit.experiments.made_up_page import everything
from tests.unit.experiments.made_up_records import quick

PHONE = 390 - 2 * 16  # pixels of a phone's page between its margins
SOURCE = re.compile(
    r'<source media="screen and \(max-width: 45rem\)" srcset="data:image/svg\+xml;base64,([^"]+)"'
)


def drawings(folder: Path) -> Iterator[tuple[str, Drawing]]:
    """Every kind of plot, with long names and short ones."""
    kept, made_up = open_campaign(THREE_STACKS), everything(folder / "page")
    for made in (kept, made_up, ladder(folder / "ladder", 5, 6.0, 2.0, 0.3)):
        yield from drawings_of(analyse(made)).items()
    yield (
        "growth",
        drawings_of(analyse(grown(folder / "growth", keep=lambda axes: axes["seed"] == 1)))["growth"],
    )
    yield from answer_drawings(answers([analysed(folder / "answer", costs(30))])).items()


def test_nothing_is_cropped_and_bars_keep_their_room(tmp_path: Path) -> None:
    seen = set()
    for name, draw in drawings(tmp_path):
        with mpl.rc_context(STYLE):
            figure: Any = figure_of(draw, NARROW)
            canvas: Any = FigureCanvasAgg(figure)
            canvas.draw()
            taken = figure.get_tightbbox(canvas.get_renderer())  # inches, of all that is drawn
        width, height = figure.get_size_inches()
        assert width == NARROW
        assert taken.x0 >= 0 and taken.y0 >= 0 and taken.x1 <= width and taken.y1 <= height, name
        assert all(axes.get_position().width * width > 0.4 * NARROW for axes in figure.axes), name
        seen.add(name)
    assert seen >= {"times", "phases", "curves", "drift", "growth", "why", "answer"}


def test_letters_on_a_phone_are_as_large_as_can_be_read() -> None:
    points = STYLE["font.size"]
    assert PHONE / (NARROW * 72) * points > 9 > PHONE / (WIDE * 72) * points


def narrow(page: Path) -> list[str]:
    """The narrow plots in a page, as SVG."""
    return [base64.b64decode(each).decode() for each in SOURCE.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("kind", ["report", "answer"])
def test_a_page_has_each_plot_for_a_phone_too(tmp_path: Path, kind: str) -> None:
    if kind == "report":
        written = write_report(quick(tmp_path))
        folder = written[0].parent
    else:
        write_answer([analysed(tmp_path / "made", costs(30))], tmp_path)
        folder = tmp_path
    page = folder / f"{kind}.html"
    found = narrow(page)
    assert found and len(found) == page.read_text(encoding="utf-8").count("<img ")
    assert all(f'width="{NARROW * 72:g}pt"' in svg for svg in found)
    # The files beside it are those for a desk.
    wide = [path.read_text(encoding="utf-8") for path in folder.rglob("*.svg")]
    assert len(wide) == len(found) and all(f'width="{WIDE * 72:g}pt"' in svg for svg in wide)
