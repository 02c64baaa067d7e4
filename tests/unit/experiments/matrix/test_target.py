"""The target in a matrix: what is refused, and that it is no part of what decides the runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.campaign.presentation import read_presentation
from experiments.matrix.loading import load_matrix
from experiments.matrix.model import Matrix
from experiments.matrix.target import Target, target_fault
from experiments.util.errors import UserError
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace
from training.registry import settings_of

TARGET = "target: {metric: accuracy, at_least: 0.75}\n"


def load(folder: Path, text: str) -> Matrix:
    path = folder / "small.yml"
    path.write_text(text)
    return load_matrix(str(path))


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("{metric: accuracy}", "target: it has either at_least or at_most"),
        ("{metric: accuracy, at_least: 0.7, at_most: 0.8}", "target: it has either at_least or at_most"),
        ("{at_least: 0.7}", "target.metric: is missing"),
        ("{metric: accuracy, at_least: 7e-1}", "write 5.0e-5"),
        ("{metric: accuracy, at_least: .nan}", "target.at_least: "),
        ("{metric: test_accuracy, at_least: 0.7}", "target.metric: test_accuracy is of the test split"),
        ("{metric: accuracy, at_most: 0.7}", "more accuracy is better; give the target at_least"),
        ("{metric: loss, at_least: 0.7}", "less loss is better; give the target at_most"),
        ("{metric: accuracy, above: 0.7}", "target.above: is not a known setting"),
        ("0.7", "target: should be a mapping"),
    ],
)
def test_what_is_wrong_with_a_target_is_said_with_its_place(tmp_path: Path, target: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        load(tmp_path, f"{MATRIX}target: {target}\n")
    assert said in str(raised.value)
    assert "small.yml, line 12" in str(raised.value) and "\n" not in str(raised.value)


def test_which_way_is_better_is_for_the_workload_to_say() -> None:
    causal, _ = settings_of("causal-lm", None)
    judged = [causal.model_construct()]
    perplexity = Target(metric="perplexity", at_least=20)
    assert target_fault(perplexity, judged) is not None
    assert target_fault(Target(metric="perplexity", at_most=20), judged) is None
    # Of a metric by which nobody judges the model it is not known.
    assert target_fault(perplexity, []) is None
    script, _ = settings_of("script", None)
    assert (
        target_fault(Target(metric="error", at_most=0.1), [script.model_construct(judged_by="error")]) is None
    )


def test_a_target_is_met_at_the_value_itself() -> None:
    least, most = Target(metric="accuracy", at_least=0.78), Target(metric="loss", at_most=0.5)
    assert [least.is_met_by(correct / 1000) for correct in (779, 780, 781)] == [False, True, True]
    assert [most.is_met_by(loss) for loss in (0.51, 0.5, 0.49)] == [False, True, True]


def test_a_target_is_no_part_of_what_decides_the_runs(tmp_path: Path) -> None:
    with_target, without = load(tmp_path, MATRIX + TARGET), load(tmp_path, MATRIX)
    assert with_target.target == Target(metric="accuracy", at_least=0.75)
    assert without.target is None and with_target.content() == without.content()


def test_a_campaigns_report_follows_the_target_of_now(workplace: Workplace) -> None:
    assert workplace.run("run", "small")[0] == 0
    (campaign,) = workplace.campaigns()
    workplace.matrix(MATRIX + TARGET)
    status, output = workplace.run("run", "small")
    assert status == 0 and len(workplace.campaigns()) == 1, output
    assert "target have changed" in " ".join(output.split())
    presentation = read_presentation(campaign)
    assert presentation is not None and presentation.target == Target(metric="accuracy", at_least=0.75)
    assert workplace.run("report", "small")[0] == 0
    assert "accuracy at least 0.75" in (campaign / "report.md").read_text()
