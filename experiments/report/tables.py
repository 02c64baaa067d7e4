"""Tables of the report as data: the templates only draw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.report.formats import Value


@dataclass(frozen=True)
class Column:
    """A column's head, and whether it holds numbers."""

    name: str
    number: bool = False


@dataclass(frozen=True)
class Table:
    """One section with a table."""

    title: str
    before: str  # a sentence or two above it
    columns: list[Column]
    rows: Sequence[Sequence[Value | str]]
    after: list[str] = field(default_factory=list)  # remarks below it
    marked: list[int] = field(default_factory=list)  # indices of the rows that call for attention
    parts: Sequence[Table] = ()  # of the same section, below it, each under its own title

    @property
    def cells(self) -> list[list[Value]]:
        """The rows, with words turned into values."""
        return [[each if isinstance(each, Value) else Value(each) for each in row] for row in self.rows]

    @property
    def texts(self) -> list[list[str]]:
        """The rows as text."""
        return [[each.text for each in row] for row in self.cells]


def columns(*names: str, words: Sequence[str] = ()) -> list[Column]:
    """Columns of numbers, except those in `words`."""
    return [Column(name, name not in words) for name in names]
