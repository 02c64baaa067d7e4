"""Runs that begin with texts: Spark and DDP make the same tokens of them, and the same weights."""

from __future__ import annotations

import json

from tests.e2e.matrices import SMALL, nothing_runs, records
from tests.e2e.testbeds import Testbed

REVIEWS = 800


def test_tokens_made_in_the_run_give_the_weights_of_prepared_ones(testbed: Testbed) -> None:
    stacks = ["ddp", "spark"]
    axes = {"stack": stacks, "workers": [2], "epochs": [1], "seed": [1], "tokenizing": ["before", "in_run"]}
    text = SMALL[: SMALL.index("axes:")].replace("name: small", "name: texts").replace("1200", str(REVIEWS))
    text += f"axes: {json.dumps(axes)}\n"
    text += f"order: {json.dumps({'arrangement': 'written', 'warm_ups': False})}\n"
    matrix = testbed.root / "texts.yml"
    matrix.write_text(text, encoding="utf-8")
    testbed.make("matrix", f"MATRIX={matrix}")

    found = {
        (record["specification"]["stack"], record["specification"]["conditions"]["tokenizing"]): record
        for record in records(testbed, "texts")
    }
    assert {record["status"] for record in found.values()} == {"ok"} and len(found) == 4
    assert len({record["weights_digest"] for record in found.values()}) == 1
    assert all(found[stack, "before"]["prepared"] is None for stack in stacks)

    notes = {stack: found[stack, "in_run"]["prepared"] for stack in stacks}
    for stack, note in notes.items():
        record = found[stack, "in_run"]
        preparing = note["ended"] - note["started"]
        assert 0 < preparing < record["total_s"] and note["rows"] == REVIEWS + 200
        assert abs(sum(record["phases"].values()) + preparing - record["total_s"]) < 1e-6
        # Weights and figures come home, what is in the data set anyway does not.
        assert "prepared.json" in record["files"]
        assert not any(name.startswith("tokens/") for name in record["files"])
    assert notes["ddp"]["by"] == "one process on master, 1 thread"
    assert notes["ddp"]["ended"] < found["ddp", "in_run"]["launch"]["started"]
    assert notes["spark"]["by"] == "a Spark job of 2 tasks, 1 thread each"
    launched = found["spark", "in_run"]["launch"]
    assert launched["started"] < notes["spark"]["started"] < notes["spark"]["ended"] < launched["ended"]
    assert not testbed.node("master", "find /srv/trainbed/shared/runs -name tokens").output.strip()

    testbed.make("report", f"MATRIX={matrix}")
    (report,) = (testbed.root / "results" / "texts").glob("*/report.md")
    assert "## From texts to a trained model" in report.read_text(encoding="utf-8")
    assert nothing_runs(testbed)
