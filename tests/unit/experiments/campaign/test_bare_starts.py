"""Runs of an empty program in a campaign: made, recorded, adopted and reported beside those that train."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.analysis.figures import figures_of
from experiments.campaign.campaign import open_campaign
from experiments.campaign.exporting import find_run
from experiments.campaign.searching import find_request
from experiments.records.record import RECORD
from experiments.util.errors import UserError
from tests.unit.experiments.campaign.test_adoption import adopted, made
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace
from tests.unit.experiments.report.test_bare_starts import bare, with_bare

BOTH = MATRIX.replace("workers: [1, 2]", "workers: [1]\n  program: [training, empty]")
DECLARED = "program: {empty: true}\nplacement: {given: true}\n"


def test_empty_programs_are_run_recorded_reported_checked_and_adopted(workplace: Workplace) -> None:
    workplace.matrix(BOTH)
    for stack in ("plain", "slow"):
        declared = workplace.root / "roles" / stack / "meta/conditions.yml"
        declared.parent.mkdir(parents=True)
        declared.write_text(DECLARED, encoding="utf-8")
    workplace.behaviour(runs={"slow-empty": {"trains": True}})
    status, output = workplace.run("run", "small")
    assert status == 1 and made(workplace) == ["plain-w1", "plain-empty", "slow-w1", "slow-empty"]
    assert "· an empty program, started and ended in 0." in output
    records = workplace.records()
    assert records["plain-empty/01"].ok and records["plain-empty/01"].train_s is None
    assert str(records["slow-empty/01"].reason).startswith("The run was to start an empty program, but left ")
    assert len(workplace.faults()) == 1  # that run has no result

    workplace.behaviour()
    status, output = workplace.run("run", "small")
    assert status == 0 and made(workplace) == ["slow-empty"] and "3 of 4 runs are done already" in output
    campaign = open_campaign(workplace.campaigns()[-1])
    figures = figures_of(campaign)
    assert [(each.stack, len(each.records)) for each in figures.cells] == [("plain", 1), ("slow", 1)]
    assert len(figures.counting) == len(figures.bare) == 2 and not figures.not_run
    assert len(campaign.standing().done) == 4 and not workplace.faults()
    status, output = workplace.run("plan", "small")
    assert status == 0 and "By earlier records this takes" in output and "never made before" not in output
    assert workplace.run("report", "small")[0] == 0
    report = (campaign.folder / "report.md").read_text(encoding="utf-8")
    assert "## Fixed costs" in report and "| bare start, s |" in report

    # On the workers that the plan gives them: their ranks leave no word, but their launch does.
    workplace.matrix(BOTH.replace("seed: [1]\norder", "seed: [1, 2]\norder"))
    status, output = workplace.run("run", "small")
    assert status == 0 and adopted(output) == {campaign.file.name: 4}
    assert made(workplace) == ["plain-w1", "plain-empty", "slow-w1", "slow-empty"]


def test_a_stack_that_does_not_say_that_it_can_is_not_asked_for_an_empty_program(
    workplace: Workplace,
) -> None:
    workplace.matrix(BOTH)
    status, output = workplace.run("run", "small")
    assert status == 0 and made(workplace) == ["plain-w1", "slow-w1"]
    words = " ".join(output.replace("│", " ").split())
    assert "plain can't have program empty: its role does not say that it can." in words


def test_an_empty_program_leaves_no_model_and_nothing_to_search_around(tmp_path: Path) -> None:
    one = bare("ddp", 1)
    folder = with_bare(tmp_path, [one]).folder / one.run_id
    with pytest.raises(UserError, match=f"{one.run_id} started an empty program, which trains nothing"):
        find_run(tmp_path, str(folder), None, None, Path.resolve)
    with pytest.raises(UserError, match=f"{one.run_id} started an empty program, and so would every trial"):
        find_request(str(folder / "01" / RECORD), None, None)
