"""How the runs of a campaign trained, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.campaign.plan import PlannedRun
from experiments.report.training_words import training_text
from tests.unit.experiments.made_up_records import campaign, spec


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("precision", "bf16", "no gradient clipping, bf16 (autocast), deterministic"),
        (
            "optimiser_implementation",
            "for_loop",
            "AdamW, stepping parameter by parameter (for_loop), learning rate",
        ),
        ("padding", "max_length", "fp32, deterministic"),
        ("padding", "longest", "fp32, padded to the longest of each batch, deterministic"),
        ("padding", "none", "fp32, no padding computed, deterministic"),
        ("grouping", "length", "fp32, batches of samples of similar length, deterministic"),
        ("dropout_draws", "16_bit", "fp32, dropout drawn from 16 bits a number, deterministic"),
    ],
)
def test_what_is_computed_in_another_way_is_said(tmp_path: Path, setting: str, value: str, said: str) -> None:
    one = spec("ddp", 2)
    specification = one.model_copy(update={"work": one.work.model_copy(update={setting: value})})
    axes = {"stack": "ddp", "workers": 2, "epochs": 2, setting: value, "seed": 1}
    plan = [PlannedRun(run_id=specification.run_id, axes=axes, specification=specification)]
    made = campaign(tmp_path, plan, [])
    assert said in training_text(made.file, ())
    shown_elsewhere = "no gradient clipping" if setting == "precision" else "fp32"
    rest = f"{shown_elsewhere}, deterministic, 1 thread per rank"
    assert training_text(made.file, (setting,)).endswith(rest)
