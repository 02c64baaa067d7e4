"""Tables of benchmarks as Markdown, written with the report's own formats."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.report.tables import Table, columns


def markdown(table: Table) -> str:
    """A table under its title, with what is said before and after it."""
    names = [column.name for column in table.columns]
    rules = ["---:" if column.number else "---" for column in table.columns]
    lines = ["| " + " | ".join(cells) + " |" for cells in (names, rules, *table.texts)]
    paragraphs = [f"## {table.title}", table.before, "\n".join(lines), *table.after]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def machine_table(facts: Mapping[str, str]) -> Table:
    """What was measured on."""
    rows = [[name, value] for name, value in facts.items()]
    return Table("Machine", "", columns("", "measured on", words=("", "measured on")), rows)
