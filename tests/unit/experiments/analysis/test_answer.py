"""The dissertation's question over several campaigns: which suspects count, and what stays unexplained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.answer import Answer, answers
from experiments.cli import main
from experiments.report.answer import unexplained, write_answer
from tests.unit.experiments.analysis.test_factors import TWO, Factors, made
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_records import campaign


def analysed(
    folder: Path,
    step_ms: Callable[[str, dict[str, Any]], float],
    factors: Factors = TWO,
    noise_ms: float = 0.1,
) -> Analysis:
    """A campaign of ddp and spark whose steps take so long, and noise."""
    runs = made(step_ms, factors, seeds=5, noise_ms=noise_ms)
    return analyse(campaign(folder, [run for run, _ in runs], [found for _, found in runs]))


def of_spark(*analyses: Analysis) -> Answer:
    """What they say of Spark."""
    (found,) = (each for each in answers(analyses) if each.stack == "spark")
    return found


def costs(spark_ms: float, step_ms: float) -> Callable[[str, dict[str, Any]], float]:
    """Steps of Spark take longer by themselves, and again with reporting in each step."""

    def takes(stack: str, given: dict[str, Any]) -> float:
        reporting = given.get("reporting", "epoch") == "step"
        return 500 + (spark_ms + step_ms * reporting if stack == "spark" else 0)

    return takes


def test_what_a_stack_adds_and_pays_more_is_taken_from_what_the_dissertation_saw(tmp_path: Path) -> None:
    found = of_spark(analysed(tmp_path, costs(30, 20)))
    assert found.baseline == "ddp" and set(found.published.step_ms) == {1, 2}
    assert [each.factor for each in found.counted] == ["", "reporting", "threads"]
    explained = found.explained_ms
    assert explained.mean == pytest.approx(50, abs=3) and explained.low < 50 < explained.high
    left = unexplained(found.published.step_ms, explained)
    assert left.mean == pytest.approx(118 - explained.mean, abs=0.1)
    assert 0 < left.low < 68 < left.high


def test_of_two_campaigns_the_sharper_one_counts_and_of_two_values_the_costlier(tmp_path: Path) -> None:
    rough = analysed(tmp_path / "rough", costs(30, 20), noise_ms=9.0)
    sharp = analysed(tmp_path / "sharp", costs(30, 20))
    for order in ((rough, sharp), (sharp, rough)):
        found = of_spark(*order)
        assert len(found.suspects) == 6 and len(found.counted) == 3
        assert all(each.more.high is not None and each.more.low is not None for each in found.counted)
        assert max((each.more.high or 0) - (each.more.low or 0) for each in found.counted) < 3

    def threads(stack: str, given: dict[str, Any]) -> float:
        return 500 + {1: 0, 2: 5, 4: 40}[given["threads"]] * (stack == "spark")

    several = of_spark(analysed(tmp_path / "several", threads, {"threads": [1, 2, 4]}))
    assert [each.value for each in several.counted if each.factor] == [4]


def test_a_campaign_without_factors_tells_of_the_stack_itself(tmp_path: Path) -> None:
    found = of_spark(analysed(tmp_path, costs(30, 0), {}))
    (itself,) = found.suspects
    assert itself.factor == "" and itself.more.mean == pytest.approx(30, abs=2)
    assert found.parts and "evaluation" not in found.parts and "steps" not in found.parts


def test_the_page_says_how_much_is_left_or_that_it_cannot(tmp_path: Path) -> None:
    little = analysed(tmp_path / "little", costs(1, 0))
    text, picture = (path.read_text() for path in write_answer(answers([little]), tmp_path / "out"))
    assert "have a cause that was not measured here." in text and "2 factors" in text
    assert "| threads | 2 | 1 | " in text and "No run here says anything about a step." in text
    assert "unexplained" in picture
    much = analysed(tmp_path / "much", costs(100, 30), noise_ms=9.0)
    text, _ = (path.read_text() for path in write_answer(answers([much]), tmp_path / "out"))
    assert "That is not sharp enough to say that anything is left." in text


def test_the_command_writes_the_page_of_a_kept_campaign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["answer", str(THREE_STACKS), "--out", str(tmp_path / "out")]) == 0
    assert "answer.md" in capsys.readouterr().out
    text = (tmp_path / "out" / "answer.md").read_text()
    assert text.count("| the stack itself |") == 4 and "Campaigns: three-stacks." in text
    assert main(["answer", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 2
