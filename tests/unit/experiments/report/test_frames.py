"""A campaign as data frames: every record, and the figures that can be computed from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest

from experiments.analysis.figures import figures_of
from experiments.campaign.campaign import open_campaign
from experiments.report.frames import load
from experiments.util.errors import UserError
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_records import campaign, planned, record


def test_a_campaign_as_data_frames() -> None:
    frames = load(THREE_STACKS)
    runs = frames.runs
    assert len(runs) >= 24 and runs.counts.sum() == 24
    assert all(Path(path).is_file() for path in runs.record)
    means = runs[runs.counts].groupby(["stack", "workers"])[["train_s", "quality"]].mean()
    for cell in figures_of(open_campaign(THREE_STACKS)).cells:
        assert cell.train_s is not None and cell.quality is not None
        found = means.loc[(cell.stack, cell.workers)]
        assert found.train_s == pytest.approx(cell.train_s.mean)
        assert found.quality == pytest.approx(cell.quality.mean)

    key = ["run_id", "attempt"]
    last = frames.epochs.sort_values("epoch").groupby(key).last().reset_index()
    joined = pandas.merge(last, runs, on=key)
    assert len(joined) == len(runs) and (joined.accuracy == joined.quality).all()
    totals = frames.phases.groupby(key).seconds.sum().reset_index()
    together = pandas.merge(totals, runs, on=key)
    assert together.seconds.to_list() == pytest.approx(together.total_s.to_list())
    assert frames.ranks.groupby(key).train_s.max().max() == pytest.approx(runs.train_s.max())
    assert {"times", "quality", "runs"} <= set(frames.figures.section)


def test_runs_that_failed_are_there_and_do_not_count(tmp_path: Path) -> None:
    plan = [planned("ddp", 1, seed) for seed in (1, 2)]
    failed: dict[str, Any] = {"status": "failed", "reason": "It broke.", "weights_digest": None, "epochs": []}
    made = campaign(
        tmp_path / "a", plan, [record("ddp", 1, 30.0, 40.0, 1), record("ddp", 1, 20.0, 25.0, 2, **failed)]
    )
    runs = load(made.folder).runs
    assert runs.counts.to_list() == [True, False]
    assert runs.reason.to_list()[1] == "It broke."
    with pytest.raises(UserError, match="is not a campaign"):
        load(tmp_path)
