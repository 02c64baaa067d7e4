"""The campaign as ReFrame's run report: its fields, what it says of each run, and what it leaves out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.dissertation import dissertation
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.matrix.model import FIELDS
from experiments.report.frames import load
from experiments.report.reframe import as_reframe
from experiments.report.writer import write_report
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_records import campaign, planned, quick, record, with_batches
from tests.unit.experiments.report.test_references import with_references
from tests.unit.experiments.report.test_simulated import simulated
from tests.unit.experiments.report.test_standins import SECONDS, with_standins
from tests.unit.experiments.report.test_traced import with_traces


def has(kind: str, *names: str) -> dict[str, Any]:
    return {name: {"type": kind.split()} for name in names}


def an_object(required: tuple[str, ...], fields: dict[str, Any]) -> dict[str, Any]:
    assert not set(required) - set(fields)
    return {"type": "object", "required": list(required), "properties": fields}


NUMBERS: Final = ("num_cases", "num_failures", "num_aborted", "num_skipped")
TEST_CASE: Final = an_object(
    (
        *(
            "environ",
            "fail_phase",
            "fail_reason",
            "filename",
            "job_completion_time_unix",
            "name",
            "perfvalues",
        ),
        *("partition", "result", "system", "time_total", "unique_name"),
    ),
    has("string", "environ", "filename", "name", "partition", "scheduler", "system", "unique_name", "uuid")
    | has("string null", "fail_phase", "fail_reason", "job_completion_time")
    | has("number null", "job_completion_time_unix", "time_total")
    | has("boolean", "fixture")
    | has("array", "job_nodelist", "tags")
    | {"result": {"enum": ["pass", "fail", "abort", "skip"]}}
    | {
        "perfvalues": {
            "type": "object",
            "additionalProperties": {
                "prefixItems": [
                    {"type": "number"},
                    *[{"type": ["number", "null"]}] * 3,
                    {"type": ["string", "null"]},
                    {"enum": ["pass", "fail", None]},
                ],
                "minItems": 6,
                "maxItems": 6,
            },
        }
    },
)
REPORT: Final = an_object(
    ("restored_cases", "runs", "session_info"),
    {
        "session_info": an_object(
            ("data_version", "hostname", "time_elapsed", "time_end_unix", "time_start_unix", "uuid"),
            has("string", "data_version", "hostname", "time_start", "time_end", "uuid")
            | has("number", "time_elapsed", "time_end_unix", "time_start_unix", *NUMBERS),
        ),
        "runs": {
            "items": an_object(
                ("num_cases", "num_failures", "testcases"),
                has("number", "run_index", *NUMBERS) | {"testcases": {"items": TEST_CASE}},
            )
        },
        "restored_cases": {"maxItems": 0},
    },
)
"""What ReFrame's schema of run reports, data version 4.2, asks for, and a bit more."""


def report(made: Campaign) -> dict[str, Any]:
    """What the campaign's report has in reframe.json, checked."""
    (path,) = (path for path in write_report(made) if path.name == "reframe.json")
    content: dict[str, Any] = json.loads(path.read_bytes())
    jsonschema.validate(content, REPORT)
    return content


def cases(made: Campaign) -> list[dict[str, Any]]:
    (run,) = report(made)["runs"]
    found: list[dict[str, Any]] = run["testcases"]
    return found


def variables(case: dict[str, Any]) -> dict[str, list[Any]]:
    """Its performance variables, without system and partition."""
    return {name.split(":")[-1]: found for name, found in case["perfvalues"].items()}


def test_every_run_is_a_test_case(tmp_path: Path) -> None:
    content = report(quick(tmp_path))
    session, (run,) = content["session_info"], content["runs"]
    assert (session["data_version"], session["hostname"]) == ("4.2", "master")
    assert (session["time_start"], session["time_elapsed"]) == ("20261121T114500+0000", 75.0)
    assert [run[name] for name in NUMBERS] == [session[name] for name in NUMBERS] == [4, 0, 0, 0]
    first, *_, last = run["testcases"]
    assert first["name"] == "made %stack=ddp %workers=1 %epochs=2 %seed=1"
    place = [first[name] for name in ("system", "partition", "environ", "scheduler")]
    assert place == ["testbed", "cpu", "cpu-py3.11", "ddp"]
    assert (first["stack"], first["seed"], first["num_tasks"], last["num_tasks"]) == ("ddp", 1, 1, 2)
    assert last["job_nodelist"] == ["worker1", "worker2"]
    assert first["job_completion_time"] == "2026-11-21T11:46:02+00:00"
    assert (first["result"], first["time_total"]) == ("pass", 62.0)
    assert first["perfvalues"]["testbed:cpu:train_s"] == [50.0, None, None, None, "s", None]
    found = variables(first)
    assert found["total_s"][0] == 62.0 and found["validation_accuracy"][0] == 0.78
    phases = [value for name, (value, *_) in found.items() if name.startswith("phase_")]
    assert len(phases) == 13 and sum(phases) == pytest.approx(62.0)
    assert len({case["uuid"] for case in run["testcases"]}) == 4


def test_a_kept_campaign_has_the_seconds_of_its_records() -> None:
    content = json.loads(as_reframe(analyse(open_campaign(THREE_STACKS))))
    jsonschema.validate(content, REPORT)
    runs = load(THREE_STACKS).runs
    expected = dict(zip(runs[runs.counts].run_id, runs[runs.counts].train_s, strict=True))
    found = {case["unique_name"]: variables(case)["train_s"][0] for case in content["runs"][0]["testcases"]}
    assert len(found) == 24 and found == expected
    assert all((THREE_STACKS / case["record"]).is_file() for case in content["runs"][0]["testcases"])


def test_runs_without_a_result_say_why_and_have_no_values(tmp_path: Path) -> None:
    plan = [planned("ddp", 1, seed) for seed in (1, 2, 3)]
    plan += [planned("spark", 1, cannot_run="No Spark."), planned("spark", 2)]
    plan.append(planned("ddp", 1, 1_000_001).model_copy(update={"warm_up": True}))
    records = [
        record("ddp", 1, 50.0, 60.0, 1),
        record("ddp", 1, 51.0, 61.0, 2, status="failed", reason="It broke."),
        record("ddp", 1, 52.0, 62.0, 3, status="interrupted", reason="Ctrl-C."),
    ]
    content = report(campaign(tmp_path, plan, records))
    found = content["runs"][0]["testcases"]
    assert [(case["result"], case["fail_phase"], case["fail_reason"]) for case in found] == [
        ("pass", None, None),
        ("fail", "run", "It broke."),
        ("abort", "run", "Ctrl-C."),
        ("skip", None, "No Spark."),
        ("skip", None, "Not run yet."),
    ]
    assert [bool(case["perfvalues"]) for case in found] == [True, False, False, False, False]
    assert [case["time_total"] for case in found] == [60.0, None, None, None, None]
    assert [content["session_info"][name] for name in NUMBERS] == [5, 1, 1, 2]


def test_a_run_is_compared_with_the_inventorys_first_reference(tmp_path: Path) -> None:
    made = with_references(
        quick(tmp_path),
        {"stack": "ddp", "train_s": 40.0, "above": 0.1},
        {"train_s": 54.0, "below": 0.5, "above": 0.1},
        {"workers": 1, "accuracy": 0.8, "below": 0.01},
        {"workers": 2, "speed_up": 1.5, "below": 0.1},
    )
    found = {(case["stack"], case["workers"]): case for case in cases(made)}
    train_s = {key: variables(case)["train_s"] for key, case in found.items()}
    assert train_s == {
        ("ddp", 1): [50.0, 40.0, None, 0.1, "s", "fail"],
        ("ddp", 2): [32.0, 40.0, None, 0.1, "s", "pass"],
        ("spark", 1): [55.0, 54.0, -0.5, 0.1, "s", "pass"],
        ("spark", 2): [40.0, 54.0, -0.5, 0.1, "s", "pass"],
    }
    assert variables(found["ddp", 1])["validation_accuracy"] == [0.78, 0.8, -0.01, None, None, "fail"]
    assert variables(found["ddp", 2])["validation_accuracy"][1] is None
    assert found["spark", 1]["reference_sources"] == dict.fromkeys(
        ("train_s", "validation_accuracy"), "the inventory"
    )
    assert {case["result"] for case in found.values()} == {"pass"}


def test_seconds_stand_beside_the_dissertations_only_after_as_many_epochs(tmp_path: Path) -> None:
    runs = [("ddp", 1, epochs, 32, [10.0 * epochs]) for epochs in (10, 20)]
    short, same = cases(with_batches(tmp_path, runs))
    assert variables(short)["train_s"] == [100.0, None, None, None, "s", None]
    there = dissertation().run("ddp", 1, 20)
    assert there is not None
    assert variables(same)["train_s"] == [200.0, there.seconds, None, None, "s", None]
    assert same["reference_sources"] == {"train_s": f"the dissertation, table {there.table}"}
    # It has another accuracy for other data, which must not be compared.
    assert variables(same)["validation_accuracy"][1] is None


def test_seconds_of_stand_ins_are_not_there(tmp_path: Path) -> None:
    made = with_standins(tmp_path, standins=(1, 2))
    found = cases(made)
    by_standin = [case for case in found if "stand-in" in case["tags"]]
    assert len(by_standin) == 4
    for case in by_standin:
        assert set(variables(case)) == {"train_loss", "validation_loss", "validation_accuracy"}
        assert (case["result"], case["time_total"]) == ("pass", None)
    text = json.dumps([case | {"job_completion_time_unix": None} for case in found])
    assert not SECONDS.search(re.sub(r"[0-9a-f]{8,}", "", text))


def test_seconds_of_traced_runs_are_not_there(tmp_path: Path) -> None:
    found = cases(with_traces(tmp_path))
    assert {("traced" in case["tags"], "train_s" in variables(case)) for case in found} == {
        (True, False),
        (False, True),
    }


def test_seconds_of_simulated_runs_have_names_of_their_own(tmp_path: Path) -> None:
    plan, made = simulated("ddp", 1, 30.0)
    (case,) = cases(campaign(tmp_path, [plan], [made]))
    found = variables(case)
    assert found["simulated_train_s"] == [30.0, None, None, None, "s", None]
    assert all(name.startswith("simulated_") for name, (*_, unit, _) in found.items() if unit == "s")
    assert (case["tags"], case["time_total"]) == (["simulated"], None)
    assert "simulated" in case["unique_name"]


def test_an_axis_hides_no_field_of_a_test_case(tmp_path: Path) -> None:
    (first, *_) = cases(quick(tmp_path))
    assert not FIELDS & (set(first) - {"stack", "workers", "epochs", "seed"})


def test_the_same_records_give_the_same_report(tmp_path: Path) -> None:
    assert report(quick(tmp_path / "one")) == report(quick(tmp_path / "two"))
