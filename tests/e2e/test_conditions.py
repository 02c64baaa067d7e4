"""Other ways of launching and feeding the same training: the same weights, the same pinning, nothing left."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.matrices import SMALL, nothing_runs, records
from tests.e2e.testbeds import Testbed

STOCK = {"tokenizing": "before", "reporting": "epoch", "runtime": "stack", "launcher": "stack"}
#: What differs from the stacks' own ways, and the stack that it is tried with.
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "stock": ("ddp", {}),
    "native": ("ddp", {"runtime": "native"}),
    "no torchrun": ("ddp", {"runtime": "native", "launcher": "none"}),
    "no torchrun in a container": ("ddp", {"launcher": "none"}),
    "in the loop": ("spark", {"tokenizing": "in_loop"}),
    "every step": ("determined", {"reporting": "step"}),
}


def test_the_ways_of_a_ladder_end_with_the_same_weights(testbed: Testbed) -> None:
    axes = {name: [value] for name, value in STOCK.items()}
    rows = [
        {"stack": stack, "workers": 2, "epochs": 1, "seed": 1, **STOCK, **changed}
        for stack, changed in WAYS.values()
    ]
    ways = {"stack": ["ddp"], "workers": [2], "epochs": [1], "seed": [1], **axes}
    matrix = testbed.root / "ways.yml"
    text = SMALL[: SMALL.index("axes:")].replace("name: small", "name: ways").replace("1200", "600")
    order = {"arrangement": "written", "warm_ups": False}
    for name, value in (("axes", ways), ("rows", rows[1:]), ("order", order)):
        text += f"{name}: {json.dumps(value)}\n"
    matrix.write_text(text, encoding="utf-8")
    testbed.make("matrix", f"MATRIX={matrix}")

    found = {key(record): record for record in records(testbed, "ways")}
    made = {name: found[stack, tuple((STOCK | changed).values())] for name, (stack, changed) in WAYS.items()}
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


def key(record: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The stack, and in which way it was used."""
    specification = record["specification"]
    return specification["stack"], tuple(specification["conditions"][name] for name in STOCK)
