"""What each stack asks of a program that has its own loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from experiments.analysis.analysis import Analysis
from experiments.analysis.between import Asked
from experiments.report.formats import GROUPED, Value
from experiments.report.names import stack_text
from experiments.report.tables import Table, columns
from experiments.util.words import counted

TITLE: Final = "What each stack asks of the script"
COLUMNS: Final = ("stack", "lines changed", "files added", "their lines of code", "words of the command")


def programs_table(analysis: Analysis) -> Table:
    """A row for each stack; none if the campaign's runs have no program of their own."""
    commands = {
        record.specification.stack: len(record.launch.command)
        for record in analysis.figures.counting
        if record.launch is not None
    }
    return Table(
        title=TITLE,
        before=(
            "After the dissertation's table 5.10 and its section 5.5.3. Lines changed: in the script and the "
            "Python files beside it, between what was given when the campaign began and what ran on the "
            "stack, by the digests that every rank checks. Files added, and their lines of code: the stack's "
            "launcher, which trainbed brings. Words: of the command that starts the stack."
        ),
        columns=columns(*COLUMNS, words=("stack",)),
        rows=[
            [
                stack_text(stack, {}),
                Value(each.changed, GROUPED),
                Value(each.files),
                Value(each.lines, GROUPED),
                Value(commands.get(stack)),
            ]
            for stack, each in analysis.asked.by_stack.items()
        ],
        after=list(_remarks(analysis.asked)),
    )


def _remarks(found: Asked) -> Iterator[str]:
    if any(each.changed is None for each in found.by_stack.values()):
        yield "Lines changed are not counted where the campaign has not kept the text, or no run counts."
    if found.calls is not None:
        yield (
            f"{counted(found.calls, 'line')} of what was given import trainbed's optional calls or make one: "
            "the comparison asks for them, not a stack."
        )
