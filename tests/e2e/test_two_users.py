"""Simultaneous runs: two users of one cluster on every stack, and one-worker runs side by side."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.matrices import SMALL, STACKS, nothing_runs, records
from tests.e2e.testbeds import Testbed

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("provisioned")]


def matrix(testbed: Testbed, name: str, axes: dict[str, Any], **more: Any) -> str:
    """Write a matrix of 800 reviews with these axes; returns `make`'s argument for it."""
    text = SMALL[: SMALL.index("axes:")].replace("name: small", f"name: {name}").replace("1200", "800")
    order = {"arrangement": "written", "warm_ups": False}
    for part, value in ({"axes": axes, "order": order} | more).items():
        text += f"{part}: {json.dumps(value)}\n"
    path = testbed.root / f"{name}.yml"
    path.write_text(text, encoding="utf-8")
    return f"MATRIX={path}"


def training(record: dict[str, Any]) -> tuple[float, float]:
    """When the ranks' processes were up, and when training ended."""
    launch, phases = record["launch"], record["phases"]
    up: float = launch["started"] + phases["queue"] + phases["launch"]
    end: float = launch["ended"] - phases["shutdown"]
    return up, end


def hosts(record: dict[str, Any]) -> set[str]:
    """The nodes of a run."""
    return {rank["node"] for rank in record["ranks"]}


def test_two_users_who_want_the_whole_cluster(testbed: Testbed) -> None:
    axes = {"stack": STACKS, "workers": [2], "epochs": [1], "seed": [1, 2, 3]}
    testbed.make("matrix", matrix(testbed, "users", axes, together=[[1, 2]]))
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for record in records(testbed, "users"):
        found[record["specification"]["stack"], record["specification"]["work"]["seed"]] = record
    assert len(found) == 9 and {record["status"] for record in found.values()} == {"ok"}

    for (stack, seed), record in found.items():
        # Runs beside it did not affect any training.
        assert record["weights_digest"] == found["ddp", seed]["weights_digest"], record["run_id"]
        if seed == 3:
            assert record["together"] is None
        else:
            partner = found[stack, 3 - seed]
            assert record["together"]["why"] == "users"
            assert record["together"]["begun"] == partner["together"]["begun"]

    # Runs that start containers share the nodes.
    first, second = sorted(training(found["ddp", seed]) for seed in (1, 2))
    assert second[0] < first[1]
    # Runs that ask a scheduler for the whole cluster take turns.
    for stack in ("spark", "determined"):
        first, second = sorted(training(found[stack, seed]) for seed in (1, 2))
        assert second[0] >= first[1]
        waited = max(found[stack, seed]["phases"]["queue"] for seed in (1, 2))
        assert waited > (first[1] - first[0]) / 3
    testbed.make("report", "MATRIX=users")
    (report,) = (testbed.root / "results" / "users").glob("*/report.md")
    text = report.read_text(encoding="utf-8")
    assert "## Two users at once" in text and "spark, 2 workers each, 1 epoch: they took turns" in text
    assert nothing_runs(testbed)


def test_runs_of_one_worker_side_by_side(testbed: Testbed) -> None:
    # Each run begins with texts, so two processes on the master tokenise at once.
    axes = {
        "stack": ["ddp", "spark"],
        "workers": [1],
        "epochs": [1, 2],
        "seed": [1],
        "tokenizing": ["in_run"],
    }
    testbed.make("matrix", matrix(testbed, "beside", axes), "ARGS=--side-by-side")
    made = records(testbed, "beside")
    assert len(made) == 4 and {record["status"] for record in made} == {"ok"}
    assert {record["together"]["why"] for record in made} == {"side by side"}
    assert all(record["prepared"]["rows"] == 1000 for record in made)
    for stack in ("ddp", "spark"):
        one, other = (record for record in made if record["specification"]["stack"] == stack)
        assert one["together"]["begun"] == other["together"]["begun"]
        assert hosts(one).isdisjoint(hosts(other))
    assert nothing_runs(testbed)
