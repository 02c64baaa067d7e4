"""Kept records stay readable: the same run ids, digests and figures as on the day they were made."""

from __future__ import annotations

import csv
import math
import shutil
from pathlib import Path

import pytest

from experiments.campaign.campaign import open_campaign
from experiments.records.record import read_record
from experiments.report.writer import write_report

KEPT = Path(__file__).resolve().parents[3] / "data" / "campaigns"
CAMPAIGNS = sorted(path.parent for path in KEPT.glob("*/*/campaign.json"))
RECORDS = sorted(KEPT.glob("*/*/*/*/record.json"))


def _name(path: Path) -> str:
    return str(path.relative_to(KEPT))


def test_all_of_them_are_there() -> None:
    assert len(CAMPAIGNS) == 6
    assert len(RECORDS) == 24 + 5


@pytest.mark.parametrize("path", RECORDS, ids=_name)
def test_a_record_is_read_as_it_is_and_names_the_same_run(path: Path) -> None:
    record = read_record(path)

    assert record.specification.run_id == record.run_id == path.parents[1].name
    assert record.specification.work.digest == record.work_digest
    assert record.specification.conditions.digest == record.conditions_digest


@pytest.mark.parametrize("kept", CAMPAIGNS, ids=_name)
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
    kept = KEPT / "three-stacks" / "20261123T112508Z"
    folder = Path(shutil.copytree(kept, tmp_path / kept.parent.name / kept.name))

    write_report(open_campaign(folder))

    assert (folder / "report.md").read_text() == (kept / "report.md").read_text()


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _equal(then: str, now: str) -> bool:
    """Whether two fields are the same; numbers to a billionth, as libraries differ in the last digits."""
    try:
        return math.isclose(float(then), float(now), rel_tol=1e-9, abs_tol=1e-12)
    except ValueError:
        return then == now
