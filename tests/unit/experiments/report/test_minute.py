"""The report in one minute: as much of an answer as the runs allow."""

from __future__ import annotations

from pathlib import Path

from experiments.analysis.analysis import analyse
from experiments.campaign.campaign import open_campaign
from experiments.campaign.plan import PlannedRun
from experiments.report.sections.conclusions import NOT_OF_TIMES
from experiments.report.sections.minute import in_one_minute
from experiments.report.writer import write_report
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_records import campaign, planned, record, seeds, spec
from training.spec import RunSpec

QUESTIONS = ["The same work?", "How much slower in training?", "And in all?", "Where?", "What is excluded?"]


def test_five_questions_have_answers() -> None:
    minute = in_one_minute(analyse(open_campaign(THREE_STACKS)))
    assert [each.question for each in minute] == QUESTIONS
    same, training, whole, where, excluded = (each.text for each in minute)
    assert same.startswith("Equal work gave equal weights") and "can't be told apart" in training
    assert "spark 1.38 to 1.52 times as long (1.09 to 1.91)" in whole
    assert "launch, +31.1 s (spark with 2 workers)" in where
    # All of the dissertation's figures may be evaluation, of which there is a quarter here.
    assert excluded == "None of what the dissertation's stacks add to a step."


def test_what_is_excluded_is_said_first_where_something_is(tmp_path: Path) -> None:
    made = seeds(tmp_path, 1.0, 0.002)
    minute = in_one_minute(analyse(made))
    assert [each.question for each in minute] == [QUESTIONS[-1], *QUESTIONS[:-1]]
    assert minute[0].text.endswith("is excluded here.")
    page = write_report(made)[0].read_text(encoding="utf-8")
    said = page.partition("## In one minute\n\n")[2]
    assert said.startswith("- **What is excluded?** With 2 workers spark adds ")
    assert page.count("is excluded here") == 1


def test_single_runs_answer_little_and_say_so(tmp_path: Path) -> None:
    runs = [("ddp", 1, 50.0), ("spark", 1, 60.0)]
    plan = [planned(stack, workers) for stack, workers, _ in runs]
    records = [record(stack, workers, seconds, seconds + 10) for stack, workers, seconds in runs]
    made = campaign(tmp_path, plan, records)
    answers = {each.question: each.text for each in in_one_minute(analyse(made))}
    assert list(answers) == QUESTIONS
    assert answers["And in all?"].endswith("over ddp's: spark 1.17 times as long, without an interval.")
    assert answers["Where?"] == "No part of a run is certainly longer on another stack."
    assert answers["What is excluded?"] == "None of what the dissertation's stacks add to a step."
    said = write_report(made)[0].read_text(encoding="utf-8")
    for question, text in answers.items():
        assert said.count(f"- **{question}** {text}") == 1


def test_of_one_stack_alone_nothing_is_compared(tmp_path: Path) -> None:
    made = campaign(tmp_path, [planned("ddp", 1)], [record("ddp", 1, 50.0, 60.0)])
    _, training, whole, where, excluded = (each.text for each in in_one_minute(analyse(made)))
    assert "No stack has runs that can be paired with ddp's" in training
    assert whole == "No whole runs can be paired with ddp's."
    assert where == "No runs can be paired with ddp's part by part."
    assert excluded.startswith("Nothing of the dissertation's")


def test_unequal_work_ends_it(tmp_path: Path) -> None:
    records = [record("ddp", 1, 50.0, 60.0), record("spark", 1, 60.0, 70.0, weights_digest="f" * 64)]
    made = campaign(tmp_path, [planned("ddp", 1), planned("spark", 1)], records)
    same, slower = in_one_minute(analyse(made))
    assert "did NOT give equal weights" in same.text and slower.text == NOT_OF_TIMES


def test_of_one_stack_alone_the_settings_are_the_answer(tmp_path: Path) -> None:
    plan, records = [], []
    for bits, took in (("machine", 30.0), ("portable", 60.0)):
        for seed in (1, 2, 3):
            one = spec("ddp", 1, seed)
            given = one.model_dump() | {"conditions": one.conditions.model_dump() | {"bits": bits}}
            one = RunSpec.model_validate(given)
            axes = {"stack": "ddp", "workers": 1, "epochs": 2, "bits": bits, "seed": seed}
            plan.append(PlannedRun(run_id=one.run_id, axes=axes, specification=one))
            records.append(record("ddp", 1, took + seed % 2, took + 10, seed, **of_specification(one)))
    _, training, *_ = (each.text for each in in_one_minute(analyse(campaign(tmp_path, plan, records))))
    assert training.startswith("Among the comparisons of settings, bits portable takes 1.9")
