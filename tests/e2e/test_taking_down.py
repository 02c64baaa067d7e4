"""The end of the testbed that the other end-to-end tests share."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.testbeds import Testbed, engine_at


def test_taking_it_down_leaves_nothing_but_caches(testbed: Testbed, tmp_path: Path) -> None:
    testbed.down()
    only_its = ("--filter", f"label=trainbed.testbed={testbed.name}")
    with engine_at(tmp_path / "engine"):
        networks = testbed.run("docker", "network", "ls", *only_its, "--format", "{{.Name}}").output
        volumes = testbed.run("docker", "volume", "ls", *only_its, "--format", "{{.Name}}").output
        containers = testbed.run("docker", "ps", "--all", *only_its, "--format", "{{.Names}}").output
    assert (networks, volumes, containers) == ("", f"{testbed.name}-cache\n", "")
    states = Path(testbed.environment.get("XDG_STATE_HOME", Path.home() / ".local/state"))
    assert not (states / "trainbed" / testbed.name).exists()
