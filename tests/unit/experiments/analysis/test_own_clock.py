"""What a step takes on a script's own clock: paired, to fractions of a millisecond."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.own_clock import OwnClock
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.report.export_rows import export_rows
from experiments.report.sections.conclusions import conclusions
from experiments.report.sections.factors import factors_table
from experiments.report.sections.minute import in_one_minute
from experiments.report.sections.own_clock import own_clock_table
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from training.spec import RunSpec

SEEDS = range(1, 6)


def run(stack: str, repetition: int, lines: int, seed: int, metric: str) -> tuple[PlannedRun, RunSpec]:
    fields = spec(stack, 1, seed).model_dump()
    model = {"arguments": ["--lines", str(lines)]}
    fields["work"] |= {
        "workload": "script",
        "data": {"script": "wait.py", "train": 500, "judged_by": metric},
        "model": model,
    }
    fields["conditions"] |= {"repetition": repetition}
    made = RunSpec.model_validate(fields)
    axes = {"stack": stack, "model": model, "workers": 1, "epochs": 2, "repetition": repetition, "seed": seed}
    return PlannedRun(run_id=made.run_id, axes=axes, specification=made), made


def analysed(folder: Path, metric: str = "beyond_ms", **tax: dict[int, list[float]]) -> Analysis:
    """A campaign of these metrics by stack (`again`: the first stack's repetition), lines and seed."""
    plan: list[PlannedRun] = []
    records: list[Record] = []
    for name, by_lines in tax.items():
        stack, repetition = ("ddp", 2) if name == "again" else (name, 1)
        for lines, values in by_lines.items():
            for seed, value in zip(SEEDS, values, strict=True):
                planned, made = run(stack, repetition, lines, seed, metric)
                plan.append(planned)
                # Two epochs, whose mean it is; the start takes seconds, other ones each time.
                epochs = [
                    {"epoch": at, "seconds": 20, f"validation_{metric}": value + more}
                    for at, more in ((1, 0.01), (2, -0.01))
                ]
                changed: dict[str, Any] = of_specification(made) | {"epochs": epochs}
                changed |= {"validation_correct": None, "validation_count": None}
                records.append(record(stack, 1, 30 + seed % 3, 50, seed, **changed))
    made_up = campaign(folder, plan, records)
    with zipfile.ZipFile(made_up.archive, "w") as archive:
        archive.writestr("training/launchers/ddp.py", "import os\n")
    return analyse(made_up)


def of(found: list[OwnClock], stack: str, lines: int) -> OwnClock:
    (one,) = (
        each
        for each in found
        if each.cell.stack == stack and each.cell.axes["model"]["arguments"][-1] == str(lines)
    )
    return one


BASE = {0: [0.10, 0.11, 0.12, 0.11, 0.10], 100: [0.50, 0.52, 0.51, 0.50, 0.52]}
SLOW = {0: [0.13, 0.142, 0.15, 0.141, 0.13], 100: [2.50, 2.53, 2.51, 2.49, 2.52]}


def test_the_tax_of_a_launcher_has_an_interval_well_under_a_millisecond(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, ddp=BASE, spark=SLOW)
    quiet, printing = of(analysis.own_clock, "spark", 0), of(analysis.own_clock, "spark", 100)
    assert quiet.more_ms.mean == pytest.approx(0.0306) and printing.more_ms.mean == pytest.approx(2.0)
    for each in (quiet, printing):
        assert each.more_ms.low is not None and each.more_ms.high is not None
        assert 0 < each.more_ms.low < each.more_ms.mean < each.more_ms.high
        assert each.more_ms.high - each.more_ms.low < 0.1
    table = own_clock_table(analysis.own_clock, "ddp")
    assert [row[-1] for row in table.texts] == ["takes longer", "takes longer"]
    assert table.texts[0][3:7] == ["5", "0.139", "0.108", "+0.031"]
    (said,) = (said for said in conclusions(analysis) if said.startswith("On the script's own clock"))
    assert said.startswith("On the script's own clock a step takes, against ddp, +0.031 ms (+0.0")
    assert ") more on spark with 1 worker and model --lines 0 and +2.000 ms (+1.9" in said
    (slower,) = (each.text for each in in_one_minute(analysis) if "slower" in each.question)
    assert slower.startswith(f"{said} No comparison with ddp has an interval")
    exported = [row for row in export_rows(analysis) if row["section"] == "own clock"]
    assert [row["value"] for row in exported] == pytest.approx([0.0306, 2.0])


def test_no_less_is_claimed_than_repeated_runs_are_apart(tmp_path: Path) -> None:
    again = {0: [0.20, 0.09, 0.16, 0.15, 0.17]}
    found = analysed(tmp_path, ddp=BASE, spark=SLOW, again=again).own_clock
    assert len(found) == 2, "a repetition of the first stack is no stack of its own"
    floor = of(found, "spark", 0).more_ms.floor
    assert floor is not None and 0.03 < floor < 0.2
    verdicts = [row[-1] for row in own_clock_table(found, "ddp").texts]
    assert verdicts[0].startswith("within the noise: runs that differ in nothing may be up to 0.1")
    assert verdicts[1] == "takes longer"


def test_a_metric_in_other_units_is_no_clock(tmp_path: Path) -> None:
    assert analysed(tmp_path, metric="loss", ddp=BASE, spark=SLOW).own_clock == []


def test_factors_go_by_it_too_with_its_own_noise_floor(tmp_path: Path) -> None:
    again = {0: [value + (-1) ** at * 0.02 for at, value in enumerate(BASE[0])]}
    (found,) = analysed(tmp_path, ddp=BASE, again=again, spark=SLOW).recipes
    (effect,) = found.effects
    assert found.own_clock and 0.02 < found.floors["step_ms"] < 0.06
    assert found.stack_alone.mean == pytest.approx(0.0306)
    assert (effect.on_baseline.mean, effect.more_on_other.mean) == pytest.approx((0.402, 1.9694))
    assert "Milliseconds a step, on the script's own clock," in factors_table([found]).before


def test_factors_of_a_script_without_it_go_by_train_s(tmp_path: Path) -> None:
    (found,) = analysed(tmp_path, metric="loss", ddp=BASE, spark=SLOW).recipes
    assert not found.own_clock and found.stack_alone.mean == pytest.approx(0.0)
    assert "Milliseconds of train_s a step" in factors_table([found]).before
