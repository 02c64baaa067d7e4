"""A campaign as data frames, for analyses of one's own.

from experiments.report.frames import load
frames = load("results/quick/20261123T112508Z")
frames.runs[frames.runs.counts].groupby(["stack", "workers"]).train_s.describe()
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

from experiments.analysis.analysis import analyse
from experiments.campaign.attempt import Attempt
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.campaign.plan import PlannedRun
from experiments.records.record import RECORD, TEST, Record
from experiments.report.export_rows import export_rows

Row = dict[str, Any]


@dataclass(frozen=True)
class Frames:
    """One campaign. `run_id` and `attempt` tell in every frame which record a row comes from."""

    runs: pandas.DataFrame
    """A row for each record: `counts` (ok, no warm-up, and it trained), the matrix's axes, `status`,
    `reason`, `train_s` and `total_s` (seconds), `metric` and `quality` (by which people judge the model),
    `weights_digest`, `disturbed` (by what, so that its times must not be compared), `standin` (what stood in
    for the stack's own software: then none of these frames has seconds of it), `campaign` (another's, if it
    was adopted from there), `record` (the path of its file)."""
    epochs: pandas.DataFrame
    """A row for each epoch of each record: `epoch`, `seconds`, `lr`, `train_loss`, and each metric."""
    phases: pandas.DataFrame
    """A row for each phase of each record: `phase`, `seconds` (of the slowest rank)."""
    ranks: pandas.DataFrame
    """A row for each rank of each record: `rank`, `node`, `host`, `train_s`, `steps`, `peak_mb` (MiB)."""
    figures: pandas.DataFrame
    """The report's figures, as figures.csv has them."""


def load(path: str | Path) -> Frames:
    """The campaign in the folder `path`.

    Raises:
        UserError: it is not a campaign, or a record is damaged.
    """
    campaign = open_campaign(Path(path))
    found = [(run, _of_stack(attempt.record())) for run, attempt in _attempts(campaign)]
    return Frames(
        runs=pandas.DataFrame([_run(campaign, run, attempt) for run, attempt in _attempts(campaign)]),
        epochs=pandas.DataFrame([row for _, record in found for row in _epochs(record)]),
        phases=pandas.DataFrame(
            [
                _key(record) | {"phase": phase, "seconds": seconds}
                for _, record in found
                for phase, seconds in (record.phases or {}).items()
            ]
        ),
        ranks=pandas.DataFrame([row for _, record in found for row in _ranks(record)]),
        figures=pandas.DataFrame(export_rows(analyse(campaign))),
    )


def _attempts(campaign: Campaign) -> Iterator[tuple[PlannedRun, Attempt]]:
    for run in campaign.file.plan:
        for attempt in campaign.attempts(run.run_id):
            if attempt.recorded:
                yield run, attempt


def _of_stack(record: Record) -> Record:
    """A record without its times if they are a stand-in's, not its stack's."""
    return record if record.standin is None else record.without_times()


def _key(record: Record) -> Row:
    return {"run_id": record.run_id, "attempt": record.attempt}


def _run(campaign: Campaign, run: PlannedRun, attempt: Attempt) -> Row:
    record = attempt.record()
    is_it = record == campaign.counting(run.run_id)
    shown = _of_stack(record)
    return (
        _key(record)
        | run.axes
        | {
            "counts": is_it and not run.warm_up and not run.specification.bare,
            "warm_up": run.warm_up,
            "status": record.status,
            "reason": record.reason,
            "started": record.started,
            "ended": record.ended,
            "train_s": shown.train_s,
            "total_s": shown.total_s,
            "metric": record.specification.work.data.metric,
            "quality": record.quality,
            "disturbed": record.disturbed,
            "standin": record.standin,
            "weights_digest": record.weights_digest,
            "work_digest": record.work_digest,
            "conditions_digest": record.conditions_digest,
            "campaign": record.campaign,
            "record": str(attempt.folder / RECORD),
        }
    )


def _epochs(record: Record) -> Iterator[Row]:
    for epoch in record.epochs:
        own = epoch.model_dump(exclude={"metrics", "test", "validation_loss", "validation_accuracy"})
        own["seconds"] = epoch.seconds if record.standin is None else None
        named = {"loss": epoch.validation_loss, "accuracy": epoch.validation_accuracy} | epoch.metrics
        named |= {f"{TEST}{name}": value for name, value in epoch.test.items()}
        yield _key(record) | own | {name: value for name, value in named.items() if value is not None}


def _ranks(record: Record) -> Iterator[Row]:
    for rank in record.ranks:
        memory = rank.use.memory if rank.use is not None else None
        yield _key(record) | {
            "rank": rank.rank,
            "node": rank.node,
            "host": rank.host,
            "train_s": rank.train_s if record.standin is None else None,
            "steps": rank.steps,
            "peak_mb": memory.peak_mb if memory is not None else None,
        }
