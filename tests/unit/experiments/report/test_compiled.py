"""Runs of compiled models in the report: what compiling took, and why weights differ from others'."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.report.arithmetic_words import apart_text
from experiments.report.writer import write_report
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from training.spec import RunSpec

PARTED = "Data-dependent branching"


def with_compiled(folder: Path, breaks: tuple[str, ...] = ()) -> Campaign:
    """DDP and Spark on two workers, three seeds, each as it is and compiled."""
    plan, records = [], []
    for stack, mode, seed in itertools.product(("ddp", "spark"), (False, "default"), (1, 2, 3)):
        one = spec(stack, 2, seed)
        conditions = one.conditions.model_dump() | {"compile": mode}
        one = RunSpec.model_validate(one.model_dump() | {"conditions": conditions})
        axes = {"stack": stack, "workers": 2, "epochs": 2, "compile": mode, "seed": seed}
        plan.append(PlannedRun(run_id=one.run_id, axes=axes, specification=one))
        changed: dict[str, Any] = of_specification(one)
        changed |= {"weights_digest": str(seed) * 64} if mode else {}
        new = record(stack, 2, 30.0 + seed, 40.0 + seed, seed, **changed).model_dump()
        for rank in new["ranks"] if mode else ():
            took = 9.0 + seed + rank["rank"] / 4
            rank["compiled"] = {"seconds": took, "graphs": 4, "breaks": list(breaks)}
        records.append(Record.model_validate(new))
    return campaign(folder, plan, records)


def test_the_report_says_what_compiling_took_and_compares_weights_of_either_way(tmp_path: Path) -> None:
    text = write_report(with_compiled(tmp_path))[0].read_text(encoding="utf-8")
    said = "Compiled: 6 of 12 runs. Of their train_s, compiling took 10.2 to 12.2 s on the slowest rank; a"
    assert said in text and "Not all of the model was compiled" not in text
    assert "Equal work gave equal weights, to the last bit, on all stacks that did it (6 workloads" in text


def test_compiled_models_compute_otherwise(tmp_path: Path) -> None:
    there = with_compiled(tmp_path)
    plain, compiled = (there.counting(there.file.plan[at].run_id) for at in (0, 3))
    assert plain and compiled
    said = apart_text({"A": [plain.arithmetic], "B": [compiled.arithmetic]})
    assert said == "not compiled (A) and compile default (B)"


def test_it_says_what_torch_could_not_compile(tmp_path: Path) -> None:
    text = write_report(with_compiled(tmp_path, (PARTED,)))[0].read_text(encoding="utf-8")
    assert f"as much of it once. Not all of the model was compiled: {PARTED}." in text
