"""Other ways of launching and feeding the same training: the same weights, the same pinning, nothing left."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.matrices import SMALL, nothing_runs, records
from tests.e2e.testbeds import Testbed

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("provisioned")]

STOCK = {"tokenizing": "before", "reporting": "epoch", "runtime": "stack", "launcher": "stack"}
#: Each way's stack, and how it differs from the stacks' own way.
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "stock": ("ddp", {}),
    "native": ("ddp", {"runtime": "native"}),
    "no torchrun": ("ddp", {"runtime": "native", "launcher": "none"}),
    "no torchrun in a container": ("ddp", {"launcher": "none"}),
    "in the loop": ("spark", {"tokenizing": "in_loop"}),
    "every step": ("determined", {"reporting": "step"}),
    "texts": ("ddp", {"tokenizing": "in_run"}),
    "texts by Spark": ("spark", {"tokenizing": "in_run"}),
}
TRAIN, VALIDATION = 600, 200  # samples


def test_the_ways_of_a_ladder_end_with_the_same_weights(testbed: Testbed) -> None:
    axes = {name: [value] for name, value in STOCK.items()}
    rows = [
        {"stack": stack, "workers": 2, "epochs": 1, "seed": 1, **STOCK, **changed}
        for stack, changed in WAYS.values()
    ]
    ways = {"stack": ["ddp"], "workers": [2], "epochs": [1], "seed": [1], **axes}
    matrix = testbed.root / "ways.yml"
    text = SMALL[: SMALL.index("axes:")].replace("name: small", "name: ways")
    text = text.replace("train: 1200", f"train: {TRAIN}")
    order = {"arrangement": "written", "warm_ups": False}
    for name, value in (("axes", ways), ("rows", rows[1:]), ("order", order)):
        text += f"{name}: {json.dumps(value)}\n"
    matrix.write_text(text, encoding="utf-8")
    testbed.make("matrix", f"MATRIX={matrix}")

    made = by_way(testbed)
    assert {record["status"] for record in made.values()} == {"ok"}
    assert len({record["weights_digest"] for record in made.values()}) == 1
    for record in made.values():
        ranks = {(rank["node"], tuple(rank["affinity"]), rank["uid"]) for rank in record["ranks"]}
        assert ranks == {
            (rank["node"], tuple(rank["affinity"]), rank["uid"]) for rank in made["stock"]["ranks"]
        }
    commands = {name: " ".join(record["launch"]["command"]) for name, record in made.items()}
    assert "docker run" in commands["stock"] and "torchrun" in commands["stock"]
    assert "docker" not in commands["native"] and "torchrun" in commands["native"]
    assert "docker" not in commands["no torchrun"] and "torchrun" not in commands["no torchrun"]
    assert "docker run" in commands["no torchrun in a container"]
    assert "torchrun" not in commands["no torchrun in a container"]
    assert nothing_runs(testbed)


def by_way(testbed: Testbed) -> dict[str, dict[str, Any]]:
    """The records of the matrix above, by the name of their way."""
    found = {key(record): record for record in records(testbed, "ways")}
    return {name: found[stack, tuple((STOCK | changed).values())] for name, (stack, changed) in WAYS.items()}


def test_runs_that_begin_with_texts_say_who_made_tokens_of_them(testbed: Testbed) -> None:
    made = by_way(testbed)
    assert made["stock"]["prepared"] is None
    notes = {}
    for name in ("texts", "texts by Spark"):
        record = made[name]
        note = notes[name] = record["prepared"]
        preparing = note["ended"] - note["started"]
        assert 0 < preparing < record["total_s"] and note["rows"] == TRAIN + VALIDATION
        assert abs(sum(record["phases"].values()) + preparing - record["total_s"]) < 1e-6
        # Weights and figures are copied back; tokens, which the data set has anyway, are not.
        assert "prepared.json" in record["files"]
        assert not any(file.startswith("tokens/") for file in record["files"])
    assert notes["texts"]["by"] == "one process on master, 1 thread"
    assert notes["texts"]["ended"] < made["texts"]["launch"]["started"]
    assert notes["texts by Spark"]["by"] == "a Spark job of 2 tasks, 1 thread each"
    launched, note = made["texts by Spark"]["launch"], notes["texts by Spark"]
    assert launched["started"] < note["started"] < note["ended"] < launched["ended"]
    assert not testbed.node("master", "find /srv/trainbed/shared/runs -name tokens").output.strip()

    testbed.make("report", f"MATRIX={testbed.root / 'ways.yml'}")
    (report,) = (testbed.root / "results" / "ways").glob("*/report.md")
    assert "## From texts to a trained model" in report.read_text(encoding="utf-8")


def key(record: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The stack, and the way it was used."""
    specification = record["specification"]
    return specification["stack"], tuple(specification["conditions"][name] for name in STOCK)
