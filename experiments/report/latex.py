"""The report's tables as LaTeX, to be included in a paper; they need the package booktabs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from experiments.report.tables import Table

ESCAPED: Final = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "\N{PLUS-MINUS SIGN}": r"$\pm$",
        "\N{MINUS SIGN}": r"$-$",
        "\N{MULTIPLICATION SIGN}": r"$\times$",
        "\N{EN DASH}": "--",
    }
)


def escaped(text: str) -> str:
    """Text as LaTeX prints it."""
    return " ".join(text.split()).translate(ESCAPED)


def as_latex(name: str, paragraph: str, tables: Sequence[Table]) -> str:
    """A paragraph and tables.

    Args:
        name: of the campaign.
        paragraph: what comes first.
        tables: one environment each and one for each of its parts, labelled by its title.
    """
    parts = [
        f"% The tables of {name}, for \\input; \\usepackage{{booktabs}} in the preamble.",
        escaped(paragraph),
        *(_table(each) for table in tables for each in (table, *table.parts) if each.rows),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(table: Table) -> str:
    label = "-".join("".join(each for each in table.title.lower() if each.isalnum() or each == " ").split())
    kinds = "".join("r" if column.number else "l" for column in table.columns)
    rows = [" & ".join(escaped(column.name) for column in table.columns)]
    rows += [" & ".join(escaped(text) for text in row) for row in table.texts]
    lines = [
        r"\begin{table}",
        rf"\caption{{{escaped(table.title)}}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        rf"{rows[0]} \\",
        r"\midrule",
        *(rf"{row} \\" for row in rows[1:]),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)
