"""Testbeds that tests make for themselves, and the verbs as a person calls them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARIES = Path(sys.executable).parent
ENGINE = ROOT / "roles" / "testbed" / "files"


@dataclasses.dataclass(frozen=True)
class Done:
    """A command that has ended."""

    command: str
    code: int
    output: str
    seconds: float

    def recap(self) -> dict[str, dict[str, int]]:
        """Ansible's counts by host: ok, changed, unreachable, failed, ..."""
        recap = self.output.rsplit("PLAY RECAP", 1)[-1]
        rows = re.findall(r"^(\S+)\s+: (ok=.*)$", recap, re.MULTILINE)
        return {
            host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)}
            for host, counts in rows
        }


@dataclasses.dataclass(frozen=True)
class Testbed:
    """One testbed: its name, its network and the copy of the repository whose verbs make it."""

    __test__ = False

    name: str
    prefix: str
    root: Path
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """Environment of every verb."""
        variables = {**os.environ, **dict(self.extra), "TESTBED": self.name, "TESTBED_PREFIX": self.prefix}
        variables["ANSIBLE_CONFIG"] = str(self.root / "ansible.cfg")
        variables["PATH"] = f"{BINARIES}:{variables['PATH']}"
        variables.pop("ANSIBLE_INVENTORY", None) if "ANSIBLE_INVENTORY" not in dict(self.extra) else None
        return variables

    def run(
        self,
        *command: str,
        check: bool = True,
        timeout: float = 1500,
        variables: dict[str, str] | None = None,
    ) -> Done:
        """Run a command to its end in the copy of the repository."""
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=self.root,
            env={**self.environment, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=timeout,
        )
        result = Done(" ".join(command), done.returncode, done.stdout, time.monotonic() - began)
        print(f"$ {result.command}  [{result.seconds:.0f} s, status {result.code}]")
        if check and result.code != 0:
            raise AssertionError(f"{result.command} ended with {result.code}:\n{result.output[-6000:]}")
        return result

    def make(self, *arguments: str, check: bool = True, **variables: str) -> Done:
        """Call a verb."""
        return self.run("make", "--no-print-directory", *arguments, check=check, variables=variables)

    def playbook(self, name: str, *arguments: str, check: bool = True, **variables: str) -> Done:
        """Call a playbook."""
        return self.run(
            "ansible-playbook", f"playbooks/{name}.yml", *arguments, check=check, variables=variables
        )

    def node(self, name: str, command: str, check: bool = True) -> Done:
        """Run a shell command as root on one node, by way of the engine."""
        return self.run(
            "docker", "exec", f"{self.name}-{name}", "sh", "-c", command, check=check, timeout=180
        )

    def ansible(self, pattern: str, command: str) -> Done:
        """Run a command on nodes the way every verb reaches them."""
        return self.run("ansible", pattern, "-m", "ansible.builtin.shell", "-a", command, timeout=180)

    def start(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        return subprocess.Popen(
            command,
            cwd=self.root,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def down(self) -> None:
        """Take the testbed down, and with it everything that a test could have left."""
        self.make("testbed-down")


@contextlib.contextmanager
def engine_at(folder: Path) -> Iterator[None]:
    """The machine's engine, started for the while where the last testbed took its engine down with it."""
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0:
        yield
        return
    subprocess.run([ENGINE / "engine-start", folder / "dockerd.log"], check=True, timeout=120)
    try:
        yield
    finally:
        subprocess.run([ENGINE / "engine-stop", folder], check=True, timeout=120)


def copy_repository(target: Path) -> Path:
    """Copy what a clone would hold, uncommitted changes included, to a path of the test's choosing."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if not source.exists() and not source.is_symlink():
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target / name, follow_symlinks=False)
    return target


def kill_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a process and everything that it started in its group."""
    os.killpg(process.pid, number)


def wait_for(condition: str, ready: object, timeout: float) -> None:
    """Wait until `ready()` is true; fail with what was waited for."""
    assert callable(ready)
    end = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > end:
            raise AssertionError(f"after {timeout:.0f} s still not: {condition}")
        time.sleep(0.5)
