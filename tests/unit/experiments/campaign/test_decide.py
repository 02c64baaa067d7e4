"""Campaigns that end as soon as all is decided."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from experiments.analysis.analysis import analyse
from experiments.campaign.campaign import open_campaign
from tests.unit.experiments.made_up_workplace import MATRIX, Workplace

SEEDS = MATRIX.replace("seed: [1]\norder", "seed: [1, 2, 3, 4, 5, 6]\norder")
FIRST_LOOK = 3 * 4  # runs: three seeds of two stacks with one worker and two


def campaign_state(workplace: Workplace) -> str:
    printed = workplace.run("campaigns", "small", "--json")[1]
    state: str = json.loads(printed[printed.index("{\n") :])["campaigns"][-1]["state"]
    return state


def made(workplace: Workplace) -> int:
    """How many runs of the newest campaign count."""
    campaign = open_campaign(workplace.campaigns()[-1])
    return sum(campaign.counting(run.run_id) is not None for run in campaign.file.measured)


def report(workplace: Workplace) -> str:
    folder: Path = workplace.campaigns()[-1]
    status, output = workplace.run("report", "small", "--campaign", folder.name)
    assert status == 0, output
    return (folder / "report.md").read_text()


def test_it_ends_with_the_seed_that_decides_and_stays_ended(workplace: Workplace) -> None:
    workplace.matrix(SEEDS)
    workplace.behaviour(runs={"": {"spread": 0.02}})
    status, output = workplace.run("run", "small", "--decide", "3%")
    assert status == 0, output
    assert "Decided: 2 comparisons. Each is different, or the same within 3 %." in output
    assert made(workplace) == FIRST_LOOK
    assert workplace.faults() == [] and campaign_state(workplace) == "complete"
    said = report(workplace)
    assert "with 6 seeds at most: all was decided after 3. Intervals hold for 4 looks at the runs." in said
    assert "Not needed: all was decided without it (--decide)." in said
    assert "planned runs have no result" not in said

    for more in (("--decide", "3"), ()):
        status, output = workplace.run("run", "small", *more)
        assert status == 0 and "Decided: 2 comparisons" in output
    assert made(workplace) == FIRST_LOOK and len(workplace.campaigns()) == 1


def test_it_goes_on_while_anything_is_open_and_its_intervals_hold_for_all_looks(workplace: Workplace) -> None:
    workplace.matrix(SEEDS)
    workplace.behaviour(runs={"": {"spread": 0.5}})
    status, output = workplace.run("run", "small", "--decide", "3")
    assert status == 0, output
    assert made(workplace) == 2 * FIRST_LOOK and "Each is different" not in output
    assert "Decided: 0 of 2 comparisons; not yet: slow with 1 worker and slow with 2 workers." in output
    assert "by now there are 6. Intervals hold for 4 looks" in report(workplace)

    # The same runs in a campaign that nobody looks at before its end: narrower intervals.
    assert workplace.run("run", "small", "--new")[0] == 0
    assert "--decide" not in report(workplace)
    width = []
    for folder in workplace.campaigns():
        (_, two) = analyse(open_campaign(folder)).comparisons
        assert two.ratio.low is not None and two.ratio.high is not None
        width.append(math.log(two.ratio.high / two.ratio.low))
    assert width[0] > 1.1 * width[1]


def test_a_rule_that_comes_too_late_or_decides_nothing_is_refused(workplace: Workplace) -> None:
    for matrix, reason in (
        (MATRIX, "needs 3 or more of them; this matrix has 1 here"),
        (
            SEEDS.replace("[plain, slow]", "[plain]"),
            "compares stacks with plain, and this matrix has no other",
        ),
    ):
        workplace.matrix(matrix)
        status, output = workplace.run("run", "small", "--decide", "3")
        assert status == 2 and reason in output
    assert workplace.campaigns() == []
    workplace.matrix(SEEDS)
    assert workplace.run("run", "small", "--only", "plain-w1-e2-s1-*")[0] == 0
    status, output = workplace.run("run", "small", "--decide", "3")
    assert status == 2 and "was begun without --decide" in output and "Add --new" in output
    assert workplace.run("run", "small", "--new", "--decide", "3", "--only", "plain-w1-e2-s1-*")[0] == 0
    assert len(workplace.campaigns()) == 2
    assert open_campaign(workplace.campaigns()[-1]).file.looks == 4
    status, output = workplace.run("run", "small", "--decide", "5")
    assert status == 2 and "was begun with --decide 3" in output


@pytest.mark.parametrize("given", ["0", "-1", "101", "three"])
def test_a_margin_is_a_percentage(workplace: Workplace, given: str) -> None:
    status, output = workplace.run("run", "small", f"--decide={given}")
    assert status == 2 and f"'{given}' is not a percentage" in output
