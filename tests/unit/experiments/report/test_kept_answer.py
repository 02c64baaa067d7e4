"""The campaigns in docs/why: their records stay readable, and what is said of them is what they say."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from experiments.analysis.analysis import analyse
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.report.answer import write_answer
from experiments.util.paths import REPOSITORY

WHY = REPOSITORY / "docs" / "why"
#: In the order in which docs/why/README.md names them.
RUNS = {
    "why": 70,
    "why-evaluating-half": 70,
    "null-step": 70,
    "why-simulated": 132,
    "spark-releases": 45,
    "libraries": 45,
    "fingerprint": 75,
    "bits": 15,
    "bare-start": 45,
    "equal-speed": 30,
}


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Campaign]:
    """Each kept campaign, unpacked."""
    found = {}
    for name in RUNS:
        folder = tmp_path_factory.mktemp(name)
        with tarfile.open(WHY / name / "records.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        (campaign,) = folder.iterdir()
        found[name] = open_campaign(campaign)
    return found


def test_all_runs_are_there_and_named_in_the_table(campaigns: dict[str, Campaign]) -> None:
    assert {path.parent.name for path in WHY.glob("*/records.tar.xz")} == set(RUNS)
    table = (WHY / "README.md").read_text(encoding="utf-8")
    for name, campaign in campaigns.items():
        records = [campaign.counting(run.run_id) for run in campaign.file.wanted]
        assert sum(record is not None for record in records) == RUNS[name]
        (row,) = (line for line in table.splitlines() if line.startswith(f"| [{name}]({name}/report.md)"))
        assert f"| {RUNS[name]} |" in row


def test_the_answer_is_what_todays_code_makes_of_them(campaigns: dict[str, Campaign], tmp_path: Path) -> None:
    write_answer([analyse(campaign) for campaign in campaigns.values()], tmp_path)
    assert (tmp_path / "answer.md").read_text() == (WHY / "answer" / "answer.md").read_text()
