"""One note of how a run ended, from those of its nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.unit.roles.loading import load


def noted(folder: Path, *exits: tuple[float, int]) -> dict[str, Any]:
    """The run's note, from what the first nodes of three noted: when the command ended, and its code."""
    nodes = ["worker1", "worker2", "worker3"]
    for number, (ended, code) in enumerate(exits):
        note = {"stack": "some", "started": 10.0 - number, "ended": ended, "exit_code": code, "nodes": nodes}
        (folder / f"launch-{number}.json").write_text(json.dumps(note))
    module = load("roles/runs/library/pull_run.py")
    module.note_launch(folder)
    launch: dict[str, Any] = module.launch_of(folder)
    return launch


def test_the_exit_code_is_that_of_the_node_that_failed_first(tmp_path: Path) -> None:
    launch = noted(tmp_path, (45.0, 143), (12.0, 127), (11.0, 0))
    assert (launch["started"], launch["ended"], launch["exit_code"]) == (8.0, 45.0, 127)


def test_nodes_that_succeeded_make_a_run_that_did(tmp_path: Path) -> None:
    launch = noted(tmp_path, (45.0, 0), (12.0, 0), (11.0, 0))
    assert launch["exit_code"] == 0 and not list(tmp_path.glob("launch-*.json"))


def test_nothing_is_merged_while_a_node_has_not_noted_its_end(tmp_path: Path) -> None:
    assert noted(tmp_path, (45.0, 0), (12.0, 1)) == {}
    assert len(list(tmp_path.glob("launch-*.json"))) == 2
