"""Simulated runs say so everywhere, and stand beside no real training."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from experiments.campaign.plan import PlannedRun
from experiments.matrix.loading import load_matrix
from experiments.records.record import Record
from experiments.report.writer import write_report
from experiments.util.errors import UserError
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from training.spec import RunSpec

SIMULATED = "Nothing was trained: a simulated accelerator took a set time for every step."


def simulated(stack: str, workers: int, train_s: float) -> tuple[PlannedRun, Record]:
    """A run of 20 epochs, as the dissertation has them, and its record."""
    real = spec(stack, workers)
    work = real.work.model_copy(update={"simulated_step_ms": 43.5, "epochs": 20})
    specification = RunSpec.model_validate(real.model_copy(update={"work": work}).model_dump())
    epochs = [{"epoch": number, "seconds": 1.0, "validation_count": 1000} for number in range(1, 21)]
    changes = of_specification(specification) | {"epochs": epochs, "validation_correct": None}
    made = record(stack, workers, train_s, train_s + 9, **changes)
    axes = {"stack": stack, "workers": workers, "epochs": 20, "seed": 1}
    return PlannedRun(run_id=made.run_id, axes=axes, specification=specification), made


def test_the_report_says_that_nothing_was_trained(tmp_path: Path) -> None:
    runs = [simulated(stack, workers, 30.0) for stack in ("ddp", "spark") for workers in (1, 2)]
    made = campaign(tmp_path, [plan for plan, _ in runs], [found for _, found in runs])
    write_report(made)
    report = (made.folder / "report.md").read_text(encoding="utf-8")
    minute = report.partition("## In one minute")[2].partition("##")[0]
    assert minute.strip().startswith(f"- **What was trained?** {SIMULATED}")
    assert "no model, but a simulated accelerator that takes 43.5 ms a step" in report
    assert "We ran no model" in report and "We trained" not in report
    assert "ddp-simulated-w1-e20-s1-" in report
    assert "## Beside the dissertation" not in report and "How good the models are" not in report
    assert not (made.folder / "plots" / "curves.svg").exists()
    assert "figure 5.1" not in (made.folder / "plots" / "times.svg").read_text(encoding="utf-8")


def test_a_matrix_is_simulated_or_real(tmp_path: Path) -> None:
    axes = {"stack": ["ddp"], "workers": [1], "epochs": [1], "seed": [1], "simulated_step_ms": [None, 43.5]}
    data = {"train": 400, "validation": 100, "seed": 1, "max_length": 64}
    matrix = {"name": "mixed", "data": data, "axes": axes}
    path = tmp_path / "mixed.yml"
    path.write_text(yaml.safe_dump(matrix), encoding="utf-8")
    with pytest.raises(UserError, match="simulated runs and real training are never in one campaign"):
        load_matrix(str(path))
    axes["simulated_step_ms"] = [20.0, 43.5]
    path.write_text(yaml.safe_dump(matrix), encoding="utf-8")
    assert len(load_matrix(str(path)).combinations()) == 2
