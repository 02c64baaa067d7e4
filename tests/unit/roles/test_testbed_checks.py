"""What `make testbed` and `make testbed-down` refuse before they touch anything, from their playbooks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.roles.loading import ROOT

ROOTLESS = '{"SecurityOptions": ["name=rootless"], "OperatingSystem": "Debian GNU/Linux 12 (bookworm)"}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a testbed's state, and a stand-in for docker that notes how it is called."""
    (tmp_path / ".local" / "state" / "trainbed" / "trainbed" / "ssh").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(
        f"#!/bin/sh\necho \"$*\" >> '{tmp_path}/calls'\n[ \"$1\" != info ] || echo '{ROOTLESS}'\n"
    )
    docker.chmod(0o755)
    return tmp_path


def play(home: Path, playbook: str, *arguments: str, **variables: str) -> tuple[int, str]:
    """The exit code of a playbook, and its output on one line."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TESTBED")}
    environment |= {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "HOME": str(home),
        "XDG_STATE_HOME": "",
        "PATH": f"{home}/bin:{environment['PATH']}",
        "DOCKER_HOST": f"unix://{home}/no.sock",  # no test may reach the machine's engine
        **variables,
    }
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", f"playbooks/{playbook}.yml", *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("playbook", "arguments"),
    [("testbed", []), ("testbed_down", []), ("testbed_down", ["-e", "testbed_down_caches=true"])],
)
def test_under_a_labs_inventory_nothing_is_touched(home: Path, playbook: str, arguments: list[str]) -> None:
    code, said = play(home, playbook, *arguments, ANSIBLE_INVENTORY="inventory/lab")

    assert code != 0 and "is not a testbed's" in said and "nothing was touched" in said
    assert not (home / "calls").exists()
    assert (home / ".local" / "state" / "trainbed" / "trainbed" / "ssh").is_dir()


@pytest.mark.parametrize("prefix", ["172.16.4", "192.168.4", "10.256.4", "10.4", "198.20.4"])
def test_a_range_of_somebody_else_is_refused(home: Path, prefix: str) -> None:
    code, said = play(home, "testbed", TESTBED_PREFIX=prefix)
    assert code != 0 and f"(are '{prefix}' and" in said
    assert not (home / "calls").exists()


@pytest.mark.parametrize("prefix", ["10.255.4", "198.18.200"])
def test_a_machine_that_cannot_carry_nodes_is_refused_before_anything_is_made(
    home: Path, prefix: str
) -> None:
    code, said = play(home, "testbed", TESTBED_PREFIX=prefix)

    assert code != 0 and "The Docker engine is rootless" in said
    assert {line.split()[0] for line in (home / "calls").read_text().splitlines()} == {
        "info",
        "network",
        "--version",
    }
    assert not (home / ".local" / "state" / "trainbed" / "trainbed" / "image").exists()
