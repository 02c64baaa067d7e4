"""What would settle the rest of the dissertation's question: what was not measured, or not sharply enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import TypeAdapter

from experiments.analysis.analysis import Analysis
from experiments.analysis.answer import Answer, by_themselves
from experiments.analysis.figures import Figures
from experiments.matrix.loading import load_matrix
from experiments.report.answer_plots import suspect_text
from experiments.report.formats import TENTHS, Value, number
from experiments.report.sections.factors import ITSELF
from experiments.report.tables import Table, columns
from experiments.util.models import FrozenModel
from experiments.util.words import listed

TITLE: Final = "What would settle the rest"
MS: Final = replace(TENTHS, signed=True)
FILE: Final = Path(__file__).with_name("settling.yml")


class Settling(FrozenModel):
    """A matrix that can settle something, and where."""

    matrix: str
    settles: str
    machines: str
    command: str
    device: Literal["cuda"] | None = None  # None: any will do


@cache
def settlings() -> list[Settling]:
    """All there are."""
    return TypeAdapter(list[Settling]).validate_python(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def settling_table(
    analyses: Sequence[Analysis], refused: Sequence[Analysis], found: Sequence[Answer] = ()
) -> Table:
    """Every matrix of which a stack has no time that counts in these campaigns, with the reasons.

    After them, what these campaigns measured and could explain all of the dissertation's figure, for want of
    sharper intervals.

    Args:
        analyses: the campaigns that the page is made from.
        refused: campaigns that nothing follows from.
        found: what they say of each stack.
    """
    usable = [each.figures for each in analyses]
    useless = {each.figures.campaign.matrix for each in refused}
    rows: list[list[Value | str]] = []
    named = []
    for each in settlings():
        lacking = _lacking(each, usable, refused=each.matrix in useless)
        if lacking:
            reasons = "; ".join(f"{listed(stacks)}: {reason}" for reason, stacks in lacking.items())
            named.append(each.matrix)
            rows.append([each.settles, reasons, each.machines, Value(each.command, kind="code")])
    rows += [row for answer in found for row in _sharper(answer)]
    names = ("what it settles", "not measured", "machines", "command")
    then = " ".join(f"results/{each}" for each in named)
    return Table(
        title=TITLE,
        before=(
            "What no run here has measured, or not sharply enough, on which machines it can be, and the "
            "command. A command goes on with a campaign that lacks runs; one with more seeds begins another."
            if rows
            else "Every matrix that asks about a suspect was run on all its stacks, on GPUs, too."
        ),
        columns=columns(*names, words=names),
        rows=rows,
        after=[
            f'Then, with the campaigns of this page: make answer CAMPAIGNS="\N{HORIZONTAL ELLIPSIS} {then}"'
        ]
        if named
        else [],
    )


def _sharper(answer: Answer) -> Iterator[list[Value | str]]:
    """What should be measured again for one stack, more sharply."""
    for each in by_themselves(answer)["wide"]:
        low, high = (number(end, MS) for end in (each.bounds.low, each.bounds.high))
        yield [
            suspect_text(each) or ITSELF,
            f"{answer.stack}: not sharply enough, {low} to {high} ms a step (campaign {each.campaign})",
            "the same kind, with nothing else on them",
            Value(f"make matrix MATRIX=FILE, a copy of the matrix {each.campaign} with more seeds"),
        ]


def _lacking(each: Settling, usable: Sequence[Figures], *, refused: bool) -> dict[str, list[str]]:
    """The stacks of a matrix without a time of their own, by the reason."""
    mine = [figures for figures in usable if figures.campaign.matrix == each.matrix]
    there = [one for one in mine if each.device in (None, one.campaign.environment.device)]
    found: dict[str, list[str]] = {}
    for stack in load_matrix(each.matrix).stacks:
        if any(cell.stack == stack and cell.train_s is not None for one in there for cell in one.cells):
            continue
        missing = [
            one.campaign.stacks_missing[stack] for one in there if stack in one.campaign.stacks_missing
        ]
        if missing:
            reason = missing[-1].removesuffix(".")
        elif there:
            reason = "no run that counts"
        elif mine:
            reason = f"its campaign ran on {mine[-1].campaign.environment.device}"
        else:
            reason = "its campaign was refused" if refused else "no campaign of it was given"
        found.setdefault(reason, []).append(stack)
    return found
