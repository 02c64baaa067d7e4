"""How the runs of a campaign trained, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.campaign.plan import PlannedRun
from experiments.report.training_words import training_text
from tests.unit.experiments.made_up_records import campaign, spec


@pytest.mark.parametrize(
    ("padding", "said"),
    [
        ("max_length", "fp32, deterministic"),
        ("longest", "fp32, padded to the longest of each batch, deterministic"),
        ("none", "fp32, no padding computed, deterministic"),
    ],
)
def test_other_padding_is_said(tmp_path: Path, padding: str, said: str) -> None:
    one = spec("ddp", 2)
    specification = one.model_copy(update={"work": one.work.model_copy(update={"padding": padding})})
    axes = {"stack": "ddp", "workers": 2, "epochs": 2, "padding": padding, "seed": 1}
    plan = [PlannedRun(run_id=specification.run_id, axes=axes, specification=specification)]
    made = campaign(tmp_path, plan, [])
    assert said in training_text(made.file, ())
    assert training_text(made.file, ("padding",)).endswith("fp32, deterministic, 1 thread per rank")
