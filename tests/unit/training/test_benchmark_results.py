"""A benchmark's ratios, and its page, from samples that are kept."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from experiments.util.paths import REPOSITORY
from tests.benchmarks.results import MISSED, OPEN, REACHED, Comparison, Result, Sample, compare, reached
from tests.benchmarks.tables import page, table_of

KEPT = REPOSITORY / "tests" / "data" / "benchmarks" / "result.json"
"""Made up: no machine measured it."""

REAL = REPOSITORY / "docs" / "speed" / "bench.json"
ACCURACY = REAL.with_name("bench-accuracy.json")


def samples(**ms: list[float]) -> list[Sample]:
    return [
        Sample(group="all", name=name, round=number, ms=each)
        for name, rounds in ms.items()
        for number, each in enumerate(rounds, start=1)
    ]


def against_theirs(aim: float | None = None, **ms: list[float]) -> Comparison:
    return compare(samples(**ms), ("all", "ours"), ("all", "theirs"), "times as fast", aim)


def test_a_ratio_is_a_geometric_mean_with_a_t_interval_of_its_logarithms() -> None:
    found = against_theirs(ours=[1.0, 2.0], theirs=[2.0, 8.0])
    assert found.by_round == [2.0, 4.0]
    assert found.ratio == pytest.approx(math.sqrt(8))
    half = 12.7062 * math.log(2) / 2  # t of one degree of freedom, by the standard error
    assert (found.low, found.high) == pytest.approx(
        (math.sqrt(8) * math.exp(-half), math.sqrt(8) * math.exp(half)), rel=1e-4
    )


def test_a_single_round_has_no_interval() -> None:
    found = against_theirs(1.9, ours=[1.0], theirs=[2.0])
    assert (found.ratio, found.low, found.high) == (2.0, None, None)
    assert reached(found) == REACHED
    assert reached(against_theirs(2.1, ours=[1.0], theirs=[2.0])) == MISSED


@pytest.mark.parametrize(("aim", "said"), [(None, None), (1.9, REACHED), (2.0, OPEN), (2.1, MISSED)])
def test_an_aim_is_reached_or_missed_by_the_whole_interval(aim: float | None, said: str | None) -> None:
    assert reached(against_theirs(aim, ours=[1.0, 1.0, 1.0], theirs=[1.98, 2.0, 2.02])) == said


def test_only_samples_of_the_same_rounds_are_compared() -> None:
    with pytest.raises(ValueError, match="all ours and all theirs were not measured in the same rounds"):
        against_theirs(ours=[1.0], theirs=[1.0, 2.0])
    with pytest.raises(ValueError, match="no samples of all ours"):
        against_theirs()


@pytest.mark.parametrize("kept", [KEPT, REAL, ACCURACY], ids=["made up", "real", "accuracy"])
def test_the_page_of_a_kept_result(kept: Path) -> None:
    result = Result.model_validate_json(kept.read_text(encoding="utf-8"))
    assert page(result) == kept.with_suffix(".md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "section"),
    [("README.md", "## How fast"), ("docs/speed/README.md", "## What `make bench` shows")],
)
def test_ratios_in_texts_are_those_of_the_real_benchmark(file: str, section: str) -> None:
    text = (REPOSITORY / file).read_text(encoding="utf-8").partition(f"{section}\n")[2].partition("\n## ")[0]
    said = set(re.findall(r"(\d\.\d\d) \((\d\.\d\d) to (\d\.\d\d)\)", text))
    result = Result.model_validate_json(REAL.read_text(encoding="utf-8"))
    found = {
        tuple(f"{each:.2f}" for each in (one.ratio, one.low, one.high) if each is not None)
        for part in result.parts
        for one in part.comparisons
    }
    assert said
    assert said <= found, said - found


def test_kept_ratios_are_those_of_the_kept_samples() -> None:
    result = Result.model_validate_json(KEPT.read_text(encoding="utf-8"))
    for part in result.parts:
        groups = {each.name: each.group for each in part.samples}
        for each in part.comparisons:
            own = [sample for sample in part.samples if sample.group == each.group]
            there = each.group if each.against in {sample.name for sample in own} else groups[each.against]
            of, against = (each.group, each.name), (there, each.against)
            assert compare(part.samples, of, against, each.measure, each.aim) == each
    assert sum(len(part.comparisons) for part in result.parts) > 10


def test_what_no_row_has_is_no_column() -> None:
    result = Result.model_validate_json(KEPT.read_text(encoding="utf-8"))
    heads = [
        [column.name for column in table_of(part, group).columns]
        for part in result.parts
        for group in dict.fromkeys(each.group for each in part.samples)
    ]
    assert heads == [
        ["", "ms a step", "times as fast as Trainer", "as Trainer set alike", "aim", "reached", "loss"],
        ["", "ms a step", "plain efficiency", "weights"],
        [
            *("", "ms a step", "share of the ceiling", "plain efficiency", "forward and backward, ms"),
            *("exposed synchronisation, ms", "all else, ms", "aim", "reached", "weights"),
        ],
        ["", "ms a step", "times as fast as with figures kept"],
    ]
