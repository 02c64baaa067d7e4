"""A trace holds the steps that were asked for, on every rank, and changes no bit of the weights."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.unit.training.test_yielding import ENOUGH, Preempted
from tests.unit.training.training_helpers import Datasets, Ranks, Run, data_spec, load, run_spec
from training.spec import Conditions, RunSpec, explain
from training.traced_steps import Trace

DATA = data_spec(train=64, validation=16)
STEPS = 16  # of `WORK`, in two epochs
WORK: dict[str, Any] = {"workers": 2, "batch_per_worker": 4, "epochs": 2}


def traced(spec: RunSpec, steps: str | int) -> RunSpec:
    conditions = spec.conditions.model_dump() | {"trace": {"steps": steps}}
    return RunSpec(stack=spec.stack, work=spec.work, conditions=Conditions.model_validate(conditions))


def spans(trace: Path) -> list[dict[str, Any]]:
    """What the profiler recorded with a duration."""
    with gzip.open(trace, "rt", encoding="utf-8") as file:
        content = json.load(file)
    return [event for event in content["traceEvents"] if event.get("ph") == "X"]


def steps_in(trace: Path) -> list[int]:
    found = (re.fullmatch(r"ProfilerStep#(\d+)", event["name"]) for event in spans(trace))
    return sorted(int(step[1]) for step in found if step)


@pytest.mark.parametrize(("steps", "found"), [("7-10", [7, 8, 9, 10]), (1, [1]), (STEPS, [STEPS])])
def test_every_rank_leaves_a_trace_of_the_steps_and_the_weights_stay_the_same(
    run: Run, datasets: Datasets, steps: str | int, found: list[int]
) -> None:
    prepared = datasets(DATA)
    spec = run_spec(prepared, DATA, **WORK)
    assert spec.work.steps == STEPS
    plain, statuses = run(spec, prepared.path)
    assert statuses == [0, 0] and not list(plain.glob("*trace*"))
    out, statuses = run(traced(spec, steps), prepared.path)
    assert statuses == [0, 0]
    assert sorted(path.name for path in out.glob("*trace*")) == ["trace-0.json.gz", "trace-1.json.gz"]
    for rank in (0, 1):
        events = spans(out / Trace.file(rank))
        assert steps_in(out / Trace.file(rank)) == found
        taken = [event for event in events if event["name"].startswith("Optimizer.step")]
        assert len(taken) == len(found)
        assert any("AddmmBackward" in event["name"] for event in events)
    weights = [load(folder / "result.json")["weights_digest"] for folder in (plain, out)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("steps", "found", "said"),
    [
        ("3-9", [7, 8, 9], "so not all of steps 3-9 can be traced"),
        (4, None, "so none of step 4 can be traced"),
        ("8-9", [8, 9], None),
    ],
)
def test_steps_before_the_point_of_resume_are_not_traced_again(
    ranks: Ranks,
    run: Run,
    datasets: Datasets,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    steps: str | int,
    found: list[int] | None,
    said: str | None,
) -> None:
    from training.rank import run_rank

    prepared = datasets(DATA)
    plain = run_spec(prepared, DATA, **WORK, checkpoint_every_epochs=1)
    spec = traced(plain, steps)
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    assert ranks(2, run_rank, (file, prepared.path, out, Preempted)) == [0, 0]
    traces = [out / Trace.file(rank) for rank in (0, 1)]
    earlier = [4] if steps == 4 else None  # the first process has finished it
    assert [steps_in(path) if path.exists() else None for path in traces] == [earlier, earlier]
    for path in traces:
        path.unlink(missing_ok=True)
    capfd.readouterr()
    assert ranks(2, run_rank, (file, prepared.path, out)) == [0, 0]
    assert [steps_in(path) if path.exists() else None for path in traces] == [found, found]
    told = [line for line in capfd.readouterr().err.splitlines() if "can be traced" in line]
    assert len(told) == (2 if said else 0) and all(said in line for line in told if said)
    if said:
        assert told[0].partition(": ")[2].startswith(f"Training goes on after step {ENOUGH + 1}, ")
    whole, _ = run(plain, prepared.path)
    assert load(out / "result.json")["weights_digest"] == load(whole / "result.json")["weights_digest"]


@pytest.mark.parametrize(
    ("steps", "first", "last", "name"),
    [
        (12, 12, 12, "step 12"),
        ("12", 12, 12, "step 12"),
        ("12-12", 12, 12, "step 12"),
        ("1-100", 1, 100, "steps 1-100"),
    ],
)
def test_a_step_or_steps(steps: str | int, first: int, last: int, name: str) -> None:
    trace = Trace.model_validate({"steps": steps})
    assert (trace.first, trace.last, trace.name) == (first, last, name)
    assert Trace.model_validate_json(trace.model_dump_json()) == trace


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("15-10", "trace.steps: the first step (15) comes after the last (10): swap them."),
        ("1-101", "trace.steps: 1-101 are 101 steps, and 100 are the most that are traced."),
        (0, "trace.steps: steps are whole numbers from 1 on, such as 12 or 10-15, not '0'."),
        ("10 to 15", "trace.steps: steps are whole numbers from 1 on, such as 12 or 10-15, not '10 to 15'."),
        (True, "trace.steps: input should be a valid string, not True."),
        ("5-17", "conditions.trace: the training ends with step 16, so there is no step 17 to trace"),
    ],
)
def test_other_steps_are_refused_with_a_sentence(datasets: Datasets, steps: str | int, said: str) -> None:
    prepared = datasets(DATA)
    with pytest.raises(ValidationError) as caught:
        traced(run_spec(prepared, DATA, **WORK), steps)
    assert said in explain(caught.value)


def test_a_run_without_a_trace_keeps_its_digest() -> None:
    usual = Conditions()
    assert Conditions(trace=None).digest == usual.digest
    other = [Conditions.model_validate({"trace": {"steps": steps}}).digest for steps in (12, "12", "12-13")]
    assert other[0] == other[1] and len({usual.digest, *other}) == 3
    assert usual.digest == "3533719245f6a405b83b308d3e6b2e880df32e304e995f533b1133c5a099156e"
