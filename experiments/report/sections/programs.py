"""What each stack asks of a program that has its own loop."""

from __future__ import annotations

from typing import Final

from experiments.analysis.analysis import Analysis
from experiments.report.formats import GROUPED, Value
from experiments.report.names import stack_text
from experiments.report.tables import Table, columns

TITLE: Final = "What each stack asks of the script"


def programs_table(analysis: Analysis) -> Table:
    """A row for each stack; none if the campaign's runs have no program of their own."""
    calls = {
        record.specification.stack: len(record.launch.command)
        for record in analysis.figures.counting
        if record.launch is not None
    }
    return Table(
        title=TITLE,
        before=(
            "After the dissertation's table 5.10 and its section 5.5.3. The script ran as it is: every rank "
            "checked that its files are those that were given, so no line of it was changed and no file was "
            "added to it. What a stack needs besides, trainbed brings: files and lines of code are those of "
            "its launcher, which runs on the nodes; words are those of the command that starts it."
        ),
        columns=columns("stack", "files between", "lines of code", "words of the command", words=("stack",)),
        rows=[
            [
                stack_text(stack, {}),
                Value(each.files),
                Value(each.lines, GROUPED),
                Value(calls.get(stack)),
            ]
            for stack, each in analysis.between.items()
        ],
    )
