"""How values are written: the one place where numbers become text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

NOTHING: Final = "\N{EN DASH}"
MINUS: Final = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Format:
    """How a number is written."""

    digits: int | None = 0  # after the point; None: as many as it has
    signed: bool = False  # with a plus above zero
    factor: float = 1.0  # 100 writes a fraction in percent
    unit: str = ""  # follows the number
    least: float | None = None  # what is smaller is written "< least"
    grouped: bool = False  # 25,000


COUNT: Final = Format()
PLAIN: Final = Format(None)
GROUPED: Final = Format(grouped=True)
RATIO: Final = Format(2)
TENTHS: Final = Format(1)
P_VALUE: Final = Format(3, least=0.001)  # no more digits than mean anything
PERCENT: Final = Format(0, factor=100, unit=" %")
CHANGE: Final = Format(1, signed=True, factor=100, unit=" %")


def number(value: float | None, form: Format = COUNT) -> str:
    """A number without its unit."""
    if value is None:
        return NOTHING
    if form.least is not None and value < form.least:
        return f"< {form.least:.{form.digits}f}"
    if form.digits is None:
        return repr(value).replace("-", MINUS)
    flags = ("+" if form.signed else "") + ("," if form.grouped else "")
    return f"{value * form.factor:{flags}.{form.digits}f}".replace("-", MINUS)


def setting(value: object) -> str:
    """A value of a setting: numbers with three digits that mean something, other values as they are."""
    if isinstance(value, float):
        return f"{value:.3g}".replace("-", MINUS)
    return "yes" if value is True else "no" if value is False else str(value)


def quantity(value: float | None, form: Format = COUNT) -> str:
    """A number with its unit."""
    return NOTHING if value is None else number(value, form) + form.unit


def interval(low: float | None, high: float | None, form: Format = COUNT) -> str:
    """`0.98 to 1.02`, or `at most 1.02` and `at least 0.98` of one end alone."""
    if low is None and high is None:
        return NOTHING
    if low is None:
        return f"at most {quantity(high, form)}"
    if high is None:
        return f"at least {quantity(low, form)}"
    return f"{number(low, form)} to {quantity(high, form)}"


def span(numbers: Sequence[int]) -> str:
    """`5`, or `3 to 5`."""
    return " to ".join(number(each) for each in dict.fromkeys((min(numbers), max(numbers))))


@dataclass(frozen=True)
class Value:
    """A table's cell: a value and how it is written. Without a value it is an interval, or nothing."""

    value: float | str | None
    format: Format = COUNT
    spread: float | None = None  # follows a ±
    low: float | None = None  # ends of an interval
    high: float | None = None
    note: str = ""  # in brackets, after the interval
    kind: Literal["", "code", "bad"] = ""
    section: str = ""  # title of the report's section that it links to
    links: tuple[tuple[str, str], ...] = ()  # texts, and the files that they lead to

    @property
    def main(self) -> str:
        """The value itself."""
        if self.links:
            return ", ".join(text for text, _ in self.links)
        if isinstance(self.value, str):
            return self.value
        if self.value is None:
            return interval(self.low, self.high, self.format)
        around = "" if self.spread is None else f" ± {number(self.spread, self.format)}"
        return number(self.value, self.format) + around + self.format.unit

    @property
    def aside(self) -> str:
        """What follows it in brackets."""
        known = self.value is not None and self.low is not None and self.high is not None
        ends = interval(self.low, self.high, replace(self.format, unit="")) if known else ""
        return ", ".join(filter(None, (ends, self.note)))

    @property
    def text(self) -> str:
        """The value, with what follows it."""
        return f"{self.main} ({self.aside})" if self.aside else self.main

    @property
    def sort_key(self) -> str | None:
        """The bare number by which its column is sorted; "" if there is nothing, None for words."""
        if isinstance(self.value, str):
            return None
        found = next((each for each in (self.value, self.low, self.high) if each is not None), None)
        return "" if found is None else repr(found)


def plain_interval(low: float | None, high: float | None, form: Format) -> Value:
    """An interval as a cell of its own."""
    return Value(None, form, low=low, high=high)
