"""A campaign's runs as a file store of MLflow, written without MLflow, which need not be installed.

The layout is that of MLflow's `FileStore` (MLflow 2 and 3):

    <experiment>/meta.yaml, tags/              the campaign
    <experiment>/<run>/meta.yaml               an attempt that counts, or that failed
                       params/<name>           a setting
                       metrics/<name>          a line for each value: Unix milliseconds, value, step
                       tags/<name>
                       artifacts/              empty: files stay with the campaign

A record knows no moment of a single epoch, so all values of a run have its start's, and an epoch is a step.
Nothing in the files depends on where they lie: the place of a run's artifacts is relative to the store's.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from experiments.analysis.analysis import Analysis
from experiments.campaign.campaign import CampaignFile
from experiments.records.record import Record
from experiments.report.export_runs import (
    epoch_figures,
    has_own_times,
    lasting_id,
    marks,
    own_seconds,
    run_seconds,
)
from experiments.report.names import value_text
from experiments.util.errors import UserError
from training.settings import Settings

META: Final = "meta.yaml"
PARTS: Final = ("params", "metrics", "tags", "artifacts")
STATUS: Final = {"ok": 3, "failed": 4, "disturbed": 4, "interrupted": 5}  # FINISHED, FAILED, KILLED
LOCAL: Final = 4  # MLflow's number for a source on this machine
EXPERIMENT_IDS: Final = 10**18  # MLflow's own have as many digits
NOT_IN_KEYS: Final = re.compile(r"[^\w.\- ]")  # nor is a slash, though MLflow allows it: it would be a folder
WHOLE_RUN: Final = 0  # step of what is known once


def write_mlflow(analysis: Analysis, folder: Path) -> int:
    """Writes the campaign's runs into a new folder, which appears only when it is complete.

    Returns:
        how many runs it holds.

    Raises:
        UserError: there is something in the folder already, or it is none.
    """
    target = folder.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(
            f"{folder} exists and is not an empty folder: give another one to --mlflow. Nothing was written."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.writing")
    shutil.rmtree(draft, ignore_errors=True)  # of a killed command
    try:
        runs = _write(analysis, draft)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return runs


def key_text(name: str) -> str:
    """A name as MLflow takes it for a key: any other character becomes its number, `f1@5` is `f1-40-5`."""
    return NOT_IN_KEYS.sub(lambda found: f"-{ord(found[0]):x}-", name)


def _write(analysis: Analysis, store: Path) -> int:
    """Writes all files of the store; how many runs there are."""
    figures, campaign = analysis.figures, analysis.figures.campaign
    wanted = {run.run_id for run in campaign.wanted}
    records = [*figures.results, *(each for each in figures.attempts if each.run_id in wanted)]
    experiment = str(lasting_id(campaign).int % EXPERIMENT_IDS)
    ends = [record.ended for record in records if record.ended is not None]
    place = store / experiment
    _write_keys(place / "tags", _experiment_tags(campaign))
    _write_yaml(
        place,
        {
            "artifact_location": experiment,
            "creation_time": _milliseconds(campaign.started),
            "experiment_id": experiment,
            "last_update_time": _milliseconds(max([campaign.started, *ends])),
            "lifecycle_stage": "active",
            "name": f"{campaign.matrix} {campaign.name}",
        },
    )
    for record in records:
        run = lasting_id(campaign, record.campaign, record.run_id, record.attempt).hex
        counted = figures.places.get(record.run_id) if record.ok else None
        for part in PARTS:
            (place / run / part).mkdir(parents=True)
        _write_yaml(place / run, _run_meta(record, experiment, run))
        _write_keys(place / run / "params", _params(record.specification))
        _write_keys(place / run / "metrics", _metrics(record))
        _write_keys(place / run / "tags", _tags(record, campaign, counted))
    return len(records)


def _run_meta(record: Record, experiment: str, run: str) -> dict[str, Any]:
    """MLflow shows the time between start and end as a run's duration: only real ones have an end."""
    ended = record.ended if has_own_times(record) else None
    return {
        "artifact_uri": f"{experiment}/{run}/artifacts",
        "deleted_time": None,
        "end_time": None if ended is None else _milliseconds(ended),
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": run,
        "run_name": record.run_id,
        "run_uuid": run,
        "source_name": "",
        "source_type": LOCAL,
        "source_version": "",
        "start_time": _milliseconds(record.started),
        "status": STATUS[record.status],
        "tags": [],
        "user_id": "",
    }


def _params(settings: Settings, within: str = "") -> dict[str, str]:
    """Every setting by its path, such as `work.data.train`."""
    found: dict[str, str] = {}
    for name, value in settings.model_dump(mode="json").items():
        own = getattr(settings, name)
        if isinstance(own, Settings):
            found |= _params(own, f"{within}{name}.")
        else:
            found[f"{within}{name}"] = value_text(value)
    return found


def _metrics(record: Record) -> dict[str, str]:
    """Every figure as lines: of an epoch at its step, of the whole run at step 0."""
    lines: dict[str, list[str]] = {}
    for name, value, step in _values(record):
        lines.setdefault(name, []).append(f"{_milliseconds(record.started)} {value!r} {step}\n")
    return {name: "".join(found) for name, found in lines.items()}


def _values(record: Record) -> Iterator[tuple[str, float, int]]:
    for epoch in record.epochs:
        rate = {} if epoch.lr is None else {"lr": epoch.lr}
        seconds = own_seconds(record, {"epoch_s": epoch.seconds})
        for name, value in (epoch_figures(epoch) | rate | seconds).items():
            yield name, value, epoch.epoch
    for name, value in run_seconds(record).items():
        yield name, value, WHOLE_RUN


def _tags(record: Record, campaign: CampaignFile, place: str | None) -> dict[str, str]:
    git = record.environment.git
    said = [*([] if record.reason is None else [record.reason]), *record.notes]
    known = {
        "mlflow.runName": record.run_id,
        "mlflow.source.git.commit": git.revision,
        "mlflow.note.content": "\n\n".join(said) or None,
        "status": record.status,
        "stack": record.specification.stack,
        "matrix": campaign.matrix,
        "campaign": campaign.name,
        "made_in": record.campaign,  # another campaign, if the record was adopted from there
        "attempt": str(record.attempt),
        "inventory": record.environment.inventory,
        "git": git.text,
        "weights_digest": record.weights_digest,
        "work_digest": record.work_digest,
        "conditions_digest": record.conditions_digest,
        "code_digest": record.code_digest,
        "marks": ", ".join(marks(record)) or None,
        "not_timed": record.why_not_timed,
        "record": place,  # in the campaign's folder
    }
    return {name: value for name, value in known.items() if value is not None}


def _experiment_tags(campaign: CampaignFile) -> dict[str, str]:
    return {
        "mlflow.note.content": campaign.description,
        "matrix": campaign.matrix,
        "campaign": campaign.name,
        "baseline": campaign.baseline,
    }


def _write_keys(folder: Path, content: dict[str, str]) -> None:
    """One file for each key."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (folder / key_text(name)).write_text(text, encoding="utf-8")


def _write_yaml(folder: Path, content: dict[str, Any]) -> None:
    text = yaml.safe_dump(content, default_flow_style=False, allow_unicode=True)
    (folder / META).write_text(text, encoding="utf-8")


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
