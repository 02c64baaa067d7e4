"""The campaigns in docs/why and docs/speed: their records stay readable, and say what is said."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from experiments.analysis.analysis import analyse
from experiments.campaign.campaign import Campaign, open_campaign
from experiments.report.answer import write_answer
from experiments.report.sections.settling import settlings
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.kept_campaigns import THREE_STACKS

WHY, SPEED = (REPOSITORY / "docs" / room for room in ("why", "speed"))
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
    "launch": 110,
    "threads": 65,
    "threads-simulated": 45,
}
OF_SPEED = {"fast": 90, "growth": 63}


def unpacked(archive: Path, folder: Path) -> Campaign:
    with tarfile.open(archive) as records:
        records.extractall(folder, filter="data")
    (campaign,) = folder.iterdir()
    return open_campaign(campaign)


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Campaign]:
    """Each campaign of docs/why, unpacked."""
    return {name: unpacked(WHY / name / "records.tar.xz", tmp_path_factory.mktemp(name)) for name in RUNS}


def are_there_and_named(room: Path, campaigns: dict[str, Campaign], runs: dict[str, int]) -> None:
    """A room has these campaigns alone, each with all its runs, and a row of its README for each."""
    assert {path.parent.name for path in room.glob("*/records.tar.xz")} == set(runs)
    table = (room / "README.md").read_text(encoding="utf-8")
    for name, campaign in campaigns.items():
        records = [campaign.counting(run.run_id) for run in campaign.file.wanted]
        assert sum(record is not None for record in records) == runs[name]
        (row,) = (line for line in table.splitlines() if line.startswith(f"| [{name}]({name}/report.md)"))
        assert f"| {runs[name]} |" in row


def test_all_runs_are_there_and_named_in_the_table(campaigns: dict[str, Campaign]) -> None:
    are_there_and_named(WHY, campaigns, RUNS)


def test_those_of_speed_are_there_and_named_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = {
        name: unpacked(SPEED / name / "records.tar.xz", tmp_path_factory.mktemp(name)) for name in OF_SPEED
    }
    are_there_and_named(SPEED, found, OF_SPEED)


def test_the_answer_is_what_todays_code_makes_of_them(campaigns: dict[str, Campaign], tmp_path: Path) -> None:
    # Determined's packages were at hand for the campaign of three stacks alone.
    all_of_them = [*campaigns.values(), open_campaign(THREE_STACKS)]
    write_answer([analyse(campaign) for campaign in all_of_them], tmp_path)
    assert (tmp_path / "answer.md").read_text() == (WHY / "answer" / "answer.md").read_text()


def test_what_a_stack_lacks_in_them_is_something_that_would_settle_the_rest(
    campaigns: dict[str, Campaign],
) -> None:
    lacking = {
        each.file.matrix
        for each in campaigns.values()
        if {run.specification.stack for run in each.file.plan} & set(each.file.stacks_missing)
    }
    assert {"why", "equal-speed", "bare-start"} <= lacking <= {each.matrix for each in settlings()}


def test_steps_that_only_wait_stand_beside_no_training(campaigns: dict[str, Campaign]) -> None:
    """A script that measures its own steps, or a simulated one: neither is the dissertation's work."""
    for name in ("null-step", "why-simulated"):
        assert analyse(campaigns[name]).published == []
        report = (WHY / name / "report.md").read_text(encoding="utf-8")
        assert not {"## Beside the dissertation", "## Which stack in which situation"} & set(
            report.splitlines()
        )
    assert analyse(campaigns["equal-speed"]).published
