"""What --tags leaves out of playbooks/provision.yml: never the lock, and never a preliminary check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.roles.loading import ROOT
from tests.unit.roles.test_preflight import inventory, playbook

ALWAYS = {
    "Check the inventory": "preflight : Stop if the inventory has problems",
    "Check the nodes": "preflight : Stop if there are problems, before anything is changed",
    "Check what can be installed": "preflight : Stop if a required stack is unavailable",
    "Take the cluster's lock": "cluster_lock : Take or release the lock",
    "Release the cluster's lock": "cluster_lock : Take or release the lock",
}


def listed(*arguments: str) -> dict[str, list[str]]:
    """The tasks of each play that would run with these options."""
    done = playbook(
        "playbooks/provision.yml", "--list-tasks", *arguments, inventory=str(ROOT / "inventory/testbed")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    plays: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if play := re.match(r"  play #\d+ \(.*?\): (.*?)\tTAGS", line):
            plays[play[1]] = []
        elif task := re.match(r"      (.*?)\tTAGS", line):
            plays[list(plays)[-1]].append(task[1])
    return plays


@pytest.fixture(scope="module")
def whole() -> dict[str, list[str]]:
    """All tasks that are known before anything runs."""
    return listed()


@pytest.mark.parametrize("tag", ["install", "configure", "run"])
def test_a_step_by_itself_takes_the_lock_and_reaches_the_stacks(
    tag: str, whole: dict[str, list[str]]
) -> None:
    plays = listed("--tags", tag)
    for play, task in ALWAYS.items():
        assert task in plays[play] and plays[play] == whole[play], (play, plays[play])
    assert "Install every stack" in plays["Install the stacks"]
    names = list(plays)
    assert names.index("Take the cluster's lock") < names.index("Set up the nodes")
    assert names[-1] == "Release the cluster's lock"


def test_steps_are_told_apart(whole: dict[str, list[str]]) -> None:
    nodes = {tag: set(listed("--tags", tag)["Set up the nodes"]) for tag in ("install", "configure", "run")}
    assert "docker : Install the engine" in nodes["install"] - nodes["configure"] - nodes["run"]
    assert "docker : Configure the engine" in nodes["configure"] - nodes["install"] - nodes["run"]
    assert "docker : Wait for the engine" in nodes["run"] - nodes["install"] - nodes["configure"]
    # Configuring also brings the configuration into effect.
    assert "docker : Run the engine" in nodes["configure"] & nodes["run"]
    # Every task belongs to a step; otherwise each step by itself would leave it out.
    assert set.union(*nodes.values()) == set(whole["Set up the nodes"])


def test_a_step_by_itself_is_refused_as_the_whole_is(tmp_path: Path) -> None:
    done = playbook(
        "playbooks/provision.yml", "--tags", "configure", inventory=inventory(tmp_path, ["a", "b"], ["w1"])
    )
    assert done.returncode != 0
    assert "The inventory has 2 masters (a, b)" in re.sub(r"\s+", " ", done.stdout + done.stderr)
