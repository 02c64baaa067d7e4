"""The machines under a testbed's nodes: what tests do to a node from outside, without its cooperation."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

ENGINE = Path(__file__).resolve().parents[2] / "roles" / "testbed" / "files"


class Machine(Protocol):
    """One machine, of any kind."""

    def restart(self) -> None:
        """Shut it down cleanly and start it again, like a reboot."""

    def power_off(self) -> None:
        """Shut it down cleanly."""

    def power_on(self) -> None:
        """Start it."""

    def pull_the_plug(self) -> None:
        """Stop it without a shutdown."""

    def remove(self) -> None:
        """Remove it, with its system disk."""

    def console(self, command: str) -> None:
        """Run a shell command as root at its console, for tests that break SSH."""


class Container:
    """A machine that is a Docker container."""

    def __init__(self, name: str, run: Callable[..., object], hang_up: Callable[[], None]) -> None:
        """`run` runs a command in the testbed's environment; `hang_up` closes the connection to the node."""
        self._name = name
        self._run = run
        self._hang_up = hang_up

    def _docker(self, *arguments: str) -> None:
        self._hang_up()
        self._run("docker", *arguments)

    def restart(self) -> None:
        """Restart it; this empties /run, like a reboot."""
        self._docker("restart", "--time", "20", self._name)

    def power_off(self) -> None:
        """Stop it."""
        self._docker("stop", "--time", "20", self._name)

    def power_on(self) -> None:
        """Start it."""
        self._docker("start", self._name)

    def pull_the_plug(self) -> None:
        """Kill all its processes."""
        self._docker("kill", self._name)

    def remove(self) -> None:
        """Remove it; its volumes stay."""
        self._docker("rm", "--force", self._name)

    def console(self, command: str) -> None:
        """Run a shell command in it, through the engine."""
        self._docker("exec", self._name, "sh", "-c", command)


def remains(testbed: str) -> dict[str, list[str]]:
    """What is left of a testbed on the machines' host, by kind."""
    of_it = ["--filter", f"label=trainbed.testbed={testbed}"]
    lists = {
        "networks": ["network", "ls", *of_it, "--format", "{{.Name}}"],
        "volumes": ["volume", "ls", *of_it, "--format", "{{.Name}}"],
        "machines": ["ps", "--all", *of_it, "--format", "{{.Names}}"],
    }
    return {
        kind: subprocess.run(
            ["docker", *arguments], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split()
        for kind, arguments in lists.items()
    }


@contextlib.contextmanager
def engine_at(folder: Path) -> Iterator[None]:
    """Docker's engine on this machine; started for the duration if the last testbed took it down."""
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0:
        yield
        return
    subprocess.run([ENGINE / "engine-start", folder / "dockerd.log"], check=True, timeout=120)
    try:
        yield
    finally:
        subprocess.run([ENGINE / "engine-stop", folder], check=True, timeout=120)
