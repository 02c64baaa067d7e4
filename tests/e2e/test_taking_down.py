"""Taking down the testbed that the other end-to-end tests share."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.machines import engine_at, remains
from tests.e2e.testbeds import Testbed


def test_taking_it_down_leaves_nothing_but_caches(nodes: Testbed, tmp_path: Path) -> None:
    assert nodes.state.exists()
    nodes.down()
    with engine_at(tmp_path / "engine"):
        assert remains(nodes.name) == {"networks": [], "volumes": [f"{nodes.name}-cache"], "machines": []}
    assert not nodes.state.exists()
