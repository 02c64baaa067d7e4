"""The report of a workload whose models are not judged by accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.analysis.analysis import analyse
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Epoch, Record
from experiments.report.plots import plots_of
from experiments.report.sections.times import times_table
from tests.unit.experiments.made_up_records import campaign, record, spec
from training.spec import RunSpec


def language_run(stack: str, seed: int) -> RunSpec:
    data = {"train": 2000, "validation": 1000, "seed": 1, "block": 64}
    fields = spec(stack, 2, seed).model_dump()
    fields["work"] |= {"workload": "causal-lm", "data": data, "model": {"layers": 1}}
    return RunSpec.model_validate(fields)


def test_its_own_metric_is_in_the_table_the_plots_and_the_export(tmp_path: Path) -> None:
    plan: list[PlannedRun] = []
    records: list[Record] = []
    for at, (stack, seed) in enumerate([("ddp", 1), ("ddp", 2), ("spark", 1), ("spark", 2)]):
        made = language_run(stack, seed)
        axes = {"stack": stack, "workers": 2, "epochs": 2, "seed": seed}
        plan.append(PlannedRun(run_id=made.run_id, axes=axes, specification=made))
        epochs = [
            Epoch.model_validate(
                {"epoch": epoch, "seconds": 5.0, "validation_loss": 3.0, "validation_perplexity": 30.0 + seed}
            )
            for epoch in (1, 2)
        ]
        changes: dict[str, Any] = {"specification": made, "run_id": made.run_id, "epochs": epochs}
        changes |= {"work_digest": made.work.digest, "validation_correct": None}
        records.append(record(stack, 2, 30.0 + at, 45.0, seed, **changes))
    analysis = analyse(campaign(tmp_path, plan, records))
    table = times_table(analysis.figures)
    assert table.title == "Times, quality, weights"
    column = [column.name for column in table.columns].index("perplexity")
    assert [(row[column].value, row[column].spread) for row in table.rows] == [(31.5, 0.5**0.5)] * 2  # type: ignore[union-attr]
    assert any("train_s, total_s, perplexity: ±" in remark for remark in table.after)
    assert not any("Accuracy" in remark for remark in table.after)
    assert any(name.startswith("curves") for name in plots_of(analysis))
