"""The dissertation's research questions: every branch of what a campaign says, on records made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.decisions import Favoured
from experiments.analysis.dissertation import dissertation
from experiments.analysis.questions import Lacking, Questions
from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.campaign.stacks import Setup, Stacks
from experiments.cluster.stack_facts import OFFERS, Claim
from experiments.records.record import Record
from experiments.report.sections import questions as section
from experiments.report.sections.organisation import NOT_RECORDED
from experiments.report.sections.questions import NAMES, NOT_ANSWERED, TITLE, questions_table
from experiments.report.sections.stack_comparisons import UNPROVEN, WEIGHTS_DIFFER
from experiments.report.writer import write_report
from tests.unit.experiments.made_up_ladder import ladder
from tests.unit.experiments.made_up_records import campaign, planned, quick, record, seeds, spec
from tests.unit.experiments.report.drawn import tables
from tests.unit.experiments.report.test_organisation import TWO, keep, made_up, provisioned
from tests.unit.experiments.report.test_other_workloads import language_run
from tests.unit.experiments.report.test_standins import with_standins

COMPLETE = Lacking(
    gpus=False,
    stacks=(),
    by_standin=(),
    pairs=None,
    published_runs=5,
    repetition=False,
    scaling=False,
    company=False,
)


def parts(analysis: Analysis, topic: str) -> dict[str, list[str]]:
    """What is said about a question, part by part."""
    found: dict[str, list[str]] = {}
    for name, part, says in questions_table(analysis).texts:
        if name == NAMES[topic]:
            found.setdefault(part.partition(",")[0], []).append(says)
    return found


def here(analysis: Analysis, topic: str) -> list[str]:
    return parts(analysis, topic)["here"]


def remains(analysis: Analysis, topic: str) -> list[str]:
    return parts(analysis, topic)["stays open"]


def questions_of(analysis: Analysis) -> Questions:
    assert analysis.questions is not None
    return analysis.questions


def of_stacks(results: Path, stacks: Mapping[str, Sequence[float]], **changes: Any) -> Campaign:
    """A campaign of one cell for each stack, with the times of its seeds; `changes` apply to all records."""
    runs = [(stack, seed, each) for stack, times in stacks.items() for seed, each in enumerate(times, 1)]
    return campaign(
        results,
        [planned(stack, 2, seed) for stack, seed, _ in runs],
        [record(stack, 2, each, each + 10, seed, **changes) for stack, seed, each in runs],
    )


def test_each_question_has_what_the_dissertation_asks_and_answers(tmp_path: Path) -> None:
    analysis = analyse(quick(tmp_path))
    for question in dissertation().questions:
        found = parts(analysis, question.topic)
        assert list(found) == ["question", "the dissertation", "here", "evidence", "stays open"]
        assert (found["question"], found["the dissertation"]) == ([question.question], [question.answer])
    assert len({row[0] for row in questions_table(analysis).texts}) == 3


def test_evidence_leads_to_sections_of_the_report(tmp_path: Path) -> None:
    made = seeds(tmp_path, 1.2, 0.002)
    keep(made.folder, Setup(stacks=TWO))
    shown = tables(made)
    named = [row[2] for row in shown[TITLE].cells if row[1].main == "evidence"]
    assert named and all(each.section == each.main and each.section in shown for each in named)
    report = write_report(made)[0].read_text(encoding="utf-8")
    assert "| training time | evidence | [Against ddp](#against-ddp) |" in report


@pytest.mark.parametrize(
    ("spark", "noise", "begins", "verdict"),
    [
        (1.2, 0.002, "ddp: all others that are compared take longer.", section.SAME),
        (0.8, 0.002, "spark: faster than ddp in every comparison.", "The dissertation names ddp."),
        (1.01, 0.03, NOT_ANSWERED, section.UNDECIDED),
    ],
)
def test_the_fastest_stack_is_named_as_far_as_comparisons_allow(
    tmp_path: Path, spark: float, noise: float, begins: str, verdict: str
) -> None:
    analysis = analyse(seeds(tmp_path, spark, noise))
    said, beyond, weights = here(analysis, "time")
    assert said.startswith(begins) and verdict in said and "from 5 pairs of runs" in said
    assert beyond.startswith("spark trains ") and beyond.endswith("2.87 times in the dissertation.")
    assert "without an interval" not in beyond and weights.startswith("Equal work gave equal weights")


def test_without_pairs_no_stack_is_the_fastest(tmp_path: Path) -> None:
    said = here(analyse(campaign(tmp_path, [planned("ddp", 1)], [record("ddp", 1, 5, 6)])), "time")
    assert len(said) == 2 and said[0].startswith(f"{NOT_ANSWERED} No stack has runs that can be paired")


def test_single_pairs_leave_the_answer_open(tmp_path: Path) -> None:
    said = here(analyse(quick(tmp_path)), "time")
    assert said[0].startswith(f"{NOT_ANSWERED} No stack is certainly the fastest. {section.UNDECIDED}")
    # Ratios of single pairs, of one worker and of two.
    assert said[1] == (
        "spark trains 1.10 to 1.25 times as long as ddp here, without an interval, and 2.87 to 3.72 times in "
        "the dissertation."
    )
    assert said[2].startswith("2 workers train 1.56 times as fast as one on ddp")


def test_of_several_faster_stacks_it_is_said_what_they_are_compared_with(tmp_path: Path) -> None:
    times = {
        "ddp": (30.0, 31.0, 32.0),
        "determined": (20.0, 20.8, 21.3),
        "spark": (10.0, 10.4, 10.6),
    }
    analysis = analyse(of_stacks(tmp_path, times))
    said = here(analysis, "time")[0]
    assert said.startswith(
        "determined and spark: faster than ddp in every comparison. The others are compared"
    )
    assert remains(analysis, "time")[0] == section.NO_GPU  # nothing is missing of a stack


def test_the_dissertations_stack_may_be_certainly_slower(tmp_path: Path) -> None:
    analysis = analyse(seeds(tmp_path, 1.2, 0.002))
    favoured = analysis.favoured | {"speed": Favoured("open", worse=("ddp",))}
    said = here(replace(analysis, favoured=favoured), "time")[0]
    assert (
        f"{NOT_ANSWERED} No stack is certainly the fastest. The dissertation's answer does not hold: ddp"
        in said
    )


@pytest.mark.parametrize(("ours", "why"), [("weights", WEIGHTS_DIFFER), ("processors", UNPROVEN)])
def test_without_equal_work_there_is_no_answer_and_no_time(tmp_path: Path, ours: str, why: str) -> None:
    plan, records = [], []
    for stack, workers, seed in itertools.product(("ddp", "spark"), (1, 2), (1, 2)):
        made = record(stack, workers, 30.0 + seed, 45.0, seed).model_dump()
        if stack == "spark":
            if ours == "weights":
                changed = {"weights_digest": "f" * 64}
                made |= changed | {"ranks": [rank | changed for rank in made["ranks"]]}
            else:
                for node in made["environment"]["nodes"].values():
                    node["cpu"] = "Another processor"
        plan.append(planned(stack, workers, seed))
        records.append(Record.model_validate(made))
    analysis = analyse(campaign(tmp_path, plan, records))
    said, weights = here(analysis, "time")
    assert said == f"{NOT_ANSWERED} {why.strip()}"
    assert "times as" not in weights


def test_what_a_campaign_lacks_stays_open(tmp_path: Path) -> None:
    analysis = analyse(quick(tmp_path))
    assert questions_of(analysis).lacking == Lacking(
        gpus=True,
        stacks=("determined",),
        by_standin=(),
        pairs=1,
        published_runs=5,
        repetition=True,
        scaling=False,
        company=True,
    )
    assert remains(analysis, "time") == [
        "The times of determined: no run counts here.",
        section.NO_GPU,
        "Small differences: no comparison has more than 1 pair of runs, where the dissertation's means have "
        "up to 5 runs.",
        section.NO_REPETITION,
    ]
    assert section.NO_COMPANY in remains(analysis, "management")
    assert remains(analysis, "use")[0] == "The commands of determined: no run counts here."
    whole = replace(analysis, questions=replace(questions_of(analysis), lacking=COMPLETE))
    assert remains(whole, "time") == [section.NOTHING_OPEN]
    assert section.NO_COMPANY not in remains(whole, "management")


def test_as_many_pairs_as_the_dissertation_has_runs_are_enough(tmp_path: Path) -> None:
    lacking = questions_of(analyse(seeds(tmp_path, 1.2, 0.002))).lacking
    assert (lacking.pairs, lacking.scaling) == (None, True)


def test_runs_on_gpus_answer_for_gpus(tmp_path: Path) -> None:
    one = spec("ddp", 1)
    on_gpu = one.model_copy(update={"conditions": one.conditions.model_copy(update={"device": "cuda"})})
    plan = PlannedRun(
        run_id=on_gpu.run_id,
        axes={"stack": "ddp", "workers": 1, "epochs": 2, "seed": 1},
        specification=on_gpu,
    )
    changes: dict[str, Any] = {
        "specification": on_gpu,
        "run_id": on_gpu.run_id,
        "conditions_digest": on_gpu.conditions.digest,
    }
    made = campaign(tmp_path, [plan], [record("ddp", 1, 5, 6, **changes)])
    assert not questions_of(analyse(made)).lacking.gpus


def test_times_of_a_stand_in_stay_open(tmp_path: Path) -> None:
    analysis = analyse(with_standins(tmp_path))
    assert "What spark costs: a stand-in made runs of it." in remains(analysis, "time")
    assert here(analysis, "time")[0].startswith(NOT_ANSWERED)


def test_what_was_not_kept_is_not_answered(tmp_path: Path) -> None:
    analysis = analyse(quick(tmp_path))
    assert here(analysis, "management") == [
        f"{NOT_ANSWERED} The campaign has kept nothing about what its stacks offer."
    ]
    assert "What installing takes: not recorded." in remains(analysis, "management")
    assert remains(analysis, "use")[-1] == f"{section.OUTSIDE} {NOT_RECORDED} for ddp and spark."


def with_stacks(made: Campaign, **stacks: Any) -> Analysis:
    keep(made.folder, Setup(stacks=Stacks(stacks=stacks), provisioning=provisioned()))
    return analyse(made)


def test_features_are_counted_and_the_stack_with_most_is_named(tmp_path: Path) -> None:
    made, number = quick(tmp_path), len(OFFERS)
    against = {"shown_by": ["tests/unit/test_a.py::test_b"], "against": "a mock"}
    analysis = with_stacks(made, ddp=made_up("ddp"), spark=made_up("spark", "built in", **against))
    said = here(analysis, "management")
    assert said == [
        f"Built in, of the {number} features of table 5.11: 0 on ddp and {number} on spark (0 shown on the "
        "stack itself).",
        "Most of them: spark. The dissertation names determined.",
        "Provisioning took 9 tasks for spark.",
    ]
    remain = remains(analysis, "management")
    assert "What determined offers: nothing is kept about it here." in remain
    unshown = f"{number} of the features of spark that are built in: no test shows them on it."
    assert unshown in remain
    assert not any("installing" in each for each in remain)

    unchanged = [role.model_copy(update={"changed": {}}) for role in provisioned().roles]
    keep(made.folder, Setup(provisioning=provisioned(roles=unchanged)))
    checked = analyse(made)
    assert not any("Provisioning took" in each for each in here(checked, "management"))
    only_checked = "What installing spark takes: provisioning found it in place, and only checked it."
    assert only_checked in remains(checked, "management")

    equal = with_stacks(made, ddp=made_up("ddp"), spark=made_up("spark"))
    assert here(equal, "management")[1] == f"{NOT_ANSWERED} None has more of them than another."
    unknown = made_up("spark").model_copy(update={"facts": None})
    partial = with_stacks(made, ddp=made_up("ddp"), spark=unknown)
    assert here(partial, "management")[1] == f"{NOT_ANSWERED} What spark offers is not recorded."


def test_the_stack_with_most_features_may_be_the_dissertations(tmp_path: Path) -> None:
    made = of_stacks(tmp_path, {"ddp": (30.0, 31.0), "determined": (33.0, 34.0)})
    analysis = with_stacks(made, ddp=made_up("ddp"), determined=made_up("determined", "built in"))
    assert here(analysis, "management")[1] == f"Most of them: determined. {section.SAME}"


def test_what_table_5_11_names_is_tried_or_said_not_to_be(tmp_path: Path) -> None:
    made = quick(tmp_path)
    spark = made_up("spark")
    assert spark.facts is not None
    tried = Claim(says="one waits", shown_by=["tests/unit/test_a.py::test_b"])
    scheduling = spark.facts.offers.scheduling.model_copy(update={"tried": {"FIFO": tried}})
    offers = spark.facts.offers.model_copy(update={"scheduling": scheduling})
    facts = spark.facts.model_copy(update={"offers": offers})
    analysis = with_stacks(made, ddp=made_up("ddp"), spark=spark.model_copy(update={"facts": facts}))
    remain = remains(analysis, "management")
    assert "fair, named in table 5.11 for spark: not tried." in remain
    # Facts of earlier versions didn't say what was tried.
    assert "queuing, executor restart, named in table 5.11 for spark: not recorded." in remain
    offered = [row for row in tables(made)["What each stack offers"].texts if row[1] == "spark"]
    of_scheduling = [row for row in offered if row[0].startswith("Resource scheduling")]
    assert [row[:1] + row[2:] for row in of_scheduling] == [
        ["Resource scheduling", "automatic (FIFO, fair)", "by hand", "spark does it", "test 1"],
        ["Resource scheduling: FIFO", "named", "\N{EN DASH}", "one waits", "test 2"],
        ["Resource scheduling: fair", "named", "\N{EN DASH}", "not tried", "\N{EN DASH}"],
    ]
    (queuing,) = [row for row in offered if row[0] == "Several users: queuing"]
    assert queuing[4] == NOT_RECORDED


def test_what_using_takes_is_counted_and_not_judged(tmp_path: Path) -> None:
    made = quick(tmp_path)
    analysis = with_stacks(made, ddp=made_up("ddp"), spark=made_up("spark"))
    assert here(analysis, "use") == [
        section.NOT_JUDGED,
        "To start a run: 1 command of 1 word on ddp with 2 workers and 1 command of 1 word on spark with 2 "
        "workers.",
        "Code that launches the same training: 10 lines on ddp and 10 lines on spark (7 of them not in "
        "ddp's).",
    ]
    remain = remains(analysis, "use")
    assert {section.NOBODY_ASKED, section.SAME_CODE} < set(remain)
    without = replace(analysis, questions=replace(questions_of(analysis), started={}))
    assert here(without, "use")[1] == f"{NOT_ANSWERED} No run that counts has kept its command."


@pytest.mark.parametrize(
    ("claim", "open_"),
    [
        (None, [f"{section.OUTSIDE} not recorded for ddp and spark."]),
        (
            {"not_shown": "not tried"},
            [f"{section.OUTSIDE} nothing shows it on spark.", f"{section.OUTSIDE} not recorded for ddp."],
        ),
        ({"shown_by": ["tests/unit/test_a.py::test_b"]}, [f"{section.OUTSIDE} not recorded for ddp."]),
    ],
)
def test_submitting_from_outside_is_shown_or_stays_open(
    tmp_path: Path, claim: dict[str, Any] | None, open_: list[str]
) -> None:
    made, spark = quick(tmp_path), made_up("spark")
    assert spark.facts is not None
    elsewhere = None if claim is None else Claim.model_validate({"says": "from anywhere"} | claim)
    using = spark.facts.using.model_copy(update={"elsewhere": elsewhere})
    facts = spark.facts.model_copy(update={"using": using})
    analysis = with_stacks(made, ddp=made_up("ddp"), spark=spark.model_copy(update={"facts": facts}))
    assert [each for each in remains(analysis, "use") if each.startswith(section.OUTSIDE)] == open_
    rows = [
        row for row in tables(made)["What using a stack takes"].texts if row[1] == "submitting from elsewhere"
    ]
    assert [row[2] for row in rows if row[0] == "spark"][1] == ("from anywhere" if claim else NOT_RECORDED)


def test_only_what_can_be_set_beside_the_dissertation_is_asked(tmp_path: Path) -> None:
    other = language_run("ddp", 1)
    axes = {"stack": "ddp", "workers": 2, "epochs": 2, "seed": 1}
    plan = PlannedRun(run_id=other.run_id, axes=axes, specification=other)
    toy = planned("toy", 1)
    waits = spec("ddp", 1).model_copy(
        update={"work": spec("ddp", 1).work.model_copy(update={"simulated_step_ms": 5.0})}
    )
    simulated = PlannedRun(run_id=waits.run_id, axes=axes | {"workers": 1}, specification=waits)
    for name, run in (("other", plan), ("toy", toy), ("simulated", simulated)):
        analysis = analyse(campaign(tmp_path / name, [run], []))
        assert analysis.questions is None and not questions_table(analysis).rows
    # A campaign that has not begun is asked, and says that it has no answer.
    begun = analyse(campaign(tmp_path / "empty", [planned("ddp", 1)], []))
    assert here(begun, "time")[0].startswith(NOT_ANSWERED)
    assert here(begun, "use")[1].startswith(NOT_ANSWERED)
    assert analyse(ladder(tmp_path / "ladders", 2, 5.0, 1.0, 0.1)).questions is None
