"""A benchmark's result as a page of Markdown: nothing is computed here, but for means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from experiments.analysis.statistics import estimate
from experiments.report.formats import TENTHS, Format, Value, quantity
from experiments.report.tables import Column, Table
from tests.benchmarks.results import Comparison, Part, Result, Sample, reached
from training.spec import PHASES

MS: Final = Format(1, unit=" ms")
RATIO: Final = Format(3)
QUALITY: Final = Format(4)  # of a loss, and of an accuracy
DIGITS: Final = 8  # of a digest
COMPUTING: Final = ("forward", "backward")
EXCHANGING: Final = ("exposed_sync",)
SPENT: Final = {
    "forward and backward, ms": COMPUTING,
    "exposed synchronisation, ms": EXCHANGING,
    "all else, ms": tuple(name for name in PHASES if name not in (*COMPUTING, *EXCHANGING)),
}
"""The columns that say where a step's time goes, each with its phases."""
WORKED: Final = {"thread that trains, ms": "training", "other threads, ms": "others"}
"""The columns that say what the processor worked in a step, each with what a sample calls it."""
NOTHING: Final = "nothing runs, ms"


def page(result: Result) -> str:
    """All of it: the machine, then each part with its tables, ratios with their 95 % intervals."""
    machine = _lines(
        Table("Machine", "", [Column("machine"), Column("")], [list(each) for each in result.machine.items()])
    )
    data = (f"Data set: {each}." for each in result.data)
    parts = (line for part in result.parts for line in _part(part))
    lines = [f"# Benchmark of {result.began}", "", *machine, *(line for each in data for line in (each, ""))]
    return "\n".join([*lines, *parts]).rstrip() + "\n"


def _part(part: Part) -> Iterable[str]:
    settings = ", ".join(f"{name} {value}" for name, value in part.settings.items())
    yield from (f"## {part.name}", "", f"{settings}.", "")
    for group in dict.fromkeys(each.group for each in part.samples):
        yield from (f"### {group}", "", *_lines(table_of(part, group)))
    for note in part.notes:
        yield from (note, "")


def table_of(part: Part, group: str) -> Table:
    """A row for each name of a group; a column that would be empty is left out."""
    samples = [each for each in part.samples if each.group == group]
    comparisons = [each for each in part.comparisons if each.group == group]
    names = list(dict.fromkeys(each.name for each in samples))
    own = {name: [each for each in samples if each.name == name] for name in names}
    found = {name: [each for each in comparisons if each.name == name] for name in names}
    columns = [("ms a step", {name: _ms(own[name]) for name in names})]
    for measure in dict.fromkeys(each.measure for each in comparisons):
        columns.append((measure, {name: _ratio(found[name], measure) for name in names}))
    columns += [(head, {name: _spent(own[name], phases) for name in names}) for head, phases in SPENT.items()]
    columns += [(head, {name: _worked(own[name], by) for name in names}) for head, by in WORKED.items()]
    columns += [
        (NOTHING, {name: _idle(own[name]) for name in names}),
        ("aim", {name: _aim(found[name]) for name in names}),
        ("reached", {name: Value(_reached(found[name])) for name in names}),
        ("loss", {name: _mean([each.loss for each in own[name]], QUALITY) for name in names}),
        ("accuracy", {name: _mean([each.accuracy for each in own[name]], QUALITY) for name in names}),
        ("weights", {name: Value(_weights(own[name])) for name in names}),
    ]
    shown = [
        (head, cells) for head, cells in columns if any(each.value is not None for each in cells.values())
    ]
    heads = [Column(""), *(Column(head, head not in ("reached", "weights")) for head, _ in shown)]
    return Table(group, "", heads, [[name, *(cells[name] for _, cells in shown)] for name in names])


def _ms(samples: Sequence[Sample]) -> Value:
    found = estimate([each.ms for each in samples])
    assert found is not None  # a name comes from a sample
    return Value(found.mean, TENTHS, low=found.low, high=found.high)


def _spent(samples: Sequence[Sample], phases: Sequence[str]) -> Value:
    """Milliseconds that a step is in these phases, the mean over the rounds."""
    known = [each.phases for each in samples if each.phases is not None]
    return _mean([sum(each.get(name, 0.0) for name in phases) for each in known], TENTHS)


def _worked(samples: Sequence[Sample], by: str) -> Value:
    """Milliseconds that the processor works in a step, the mean over the rounds."""
    return _mean([each.processor[by] for each in samples if each.processor is not None], TENTHS)


def _idle(samples: Sequence[Sample]) -> Value:
    """Milliseconds of a step in which none of the process's threads runs, on one core."""
    known = [each.ms - sum(each.processor.values()) for each in samples if each.processor is not None]
    return _mean(known, TENTHS)


def _ratio(found: Sequence[Comparison], measure: str) -> Value:
    each = next((each for each in found if each.measure == measure), None)
    return Value(None) if each is None else Value(each.ratio, RATIO, low=each.low, high=each.high)


def _aim(found: Sequence[Comparison]) -> Value:
    each = _with_aim(found)
    return Value(None) if each is None else Value(each.aim, RATIO)


def _reached(found: Sequence[Comparison]) -> str | None:
    each = _with_aim(found)
    return None if each is None else reached(each)


def _with_aim(found: Sequence[Comparison]) -> Comparison | None:
    return next((each for each in found if each.aim is not None), None)


def _mean(values: Sequence[float | None], how: Format) -> Value:
    found = estimate([each for each in values if each is not None])
    return Value(None if found is None else found.mean, how)


def _weights(samples: Sequence[Sample]) -> str | None:
    """The digest that all rounds ended with; a training that is not repeatable has several."""
    found = list(dict.fromkeys(each.weights for each in samples if each.weights is not None))
    return ", ".join(each[:DIGITS] for each in found) or None


def _lines(table: Table) -> Iterable[str]:
    yield f"| {' | '.join(column.name for column in table.columns)} |"
    yield f"|{'|'.join('--:' if column.number else '---' for column in table.columns)}|"
    for row in table.texts:
        yield f"| {' | '.join(row)} |"
    yield ""


def said(sample: Sample) -> str:
    """A sample in a line, for the terminal."""
    return f"round {sample.round}, {sample.group}, {sample.name}: {quantity(sample.ms, MS)} a step"
