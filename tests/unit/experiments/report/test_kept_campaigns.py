"""Kept records stay readable: the same run ids, digests and figures as on the day they were made."""

from __future__ import annotations

import csv
import math
import re
import shutil
from pathlib import Path

import pytest

from experiments.campaign.campaign import open_campaign
from experiments.records.record import Record, read_record
from experiments.report.writer import write_report
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.kept_campaigns import DET_ONE, THREE_STACKS, kept_campaigns, name_of

CAMPAIGNS = kept_campaigns()
RECORDS = sorted(path for kept in CAMPAIGNS for path in kept.glob("*/*/record.json"))


def test_all_of_them_are_there() -> None:
    assert len(CAMPAIGNS) == 6
    assert len(RECORDS) == 24 + 5


@pytest.mark.parametrize("path", RECORDS, ids=name_of)
def test_a_record_is_read_as_it_is_and_names_the_same_run(path: Path) -> None:
    record = read_record(path)

    assert record.specification.run_id == record.run_id == path.parents[1].name
    assert record.specification.work.digest == record.work_digest
    assert record.specification.conditions.digest == record.conditions_digest


@pytest.mark.parametrize("kept", CAMPAIGNS, ids=name_of)
def test_a_campaign_gives_the_same_figures(kept: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(kept, tmp_path / kept.parent.name / kept.name))

    write_report(open_campaign(folder))

    expected, found = (_rows(where / "figures.csv") for where in (kept, folder))
    assert len(found) == len(expected)
    assert bool(found) == any(record.ok for record in map(read_record, kept.glob("*/*/record.json")))
    for at, (now, then) in enumerate(zip(found, expected, strict=True), start=2):
        different = {name: (then[name], now[name]) for name in then if not _equal(then[name], now[name])}
        assert now.keys() == then.keys()
        assert not different, f"line {at} of figures.csv"


def test_the_report_says_the_same(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(THREE_STACKS, tmp_path / THREE_STACKS.parent.name / THREE_STACKS.name))

    write_report(open_campaign(folder))

    assert (folder / "report.md").read_text() == (THREE_STACKS / "report.md").read_text()


def test_what_is_told_of_disturbed_runs_is_in_their_records() -> None:
    told = (REPOSITORY / "docs" / "determined.md").read_text(encoding="utf-8")
    records = {path.parents[2].name: read_record(path) for path in DET_ONE.glob("*/*/*/record.json")}
    undisturbed = {run.work_digest: run.weights_digest for run in _counting(THREE_STACKS)}

    for failed in ("20261123T110250Z", "20261123T110436Z"):
        reason = records[failed].reason or ""
        (quoted,) = [
            each for each in re.findall(r'failed: "([^"]+?)(?: …)?"', told) if reason.startswith(each)
        ]
        assert len(quoted) > 60
    for ended in ("20261123T105950Z", "20261123T110619Z"):
        assert records[ended].weights_digest == undisturbed[records[ended].work_digest]
    assert len(records["20261123T105950Z"].notes) == 1
    launch_s = (records["20261123T110619Z"].phases or {})["launch"]
    assert f"{launch_s:.1f} s instead of 8" in told


def _counting(kept: Path) -> list[Record]:
    return [read_record(path) for path in kept.glob("*/*/record.json")]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _equal(then: str, now: str) -> bool:
    """Whether two fields are the same; numbers to a billionth, as libraries differ in the last digits."""
    try:
        return math.isclose(float(then), float(now), rel_tol=1e-9, abs_tol=1e-12)
    except ValueError:
        return then == now
