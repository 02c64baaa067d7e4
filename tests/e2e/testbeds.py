"""Testbeds that tests make for themselves, and the verbs as a person calls them."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.connections import Inventory
from tests.e2e.machines import Container, Machine, Virtual

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "tests" / "conformance" / "toy"
BINARIES = Path(sys.executable).parent
NODE_TIMEOUT_S = 180
#: Set by tests/run.py: where testbeds are made from, and whether named parts run alone on a kept testbed.
PLACE, ALONE = "TRAINBED_TEST_PLACE", "TRAINBED_TEST_ALONE"
#: Folders in that place, each with the copy of the repository that a testbed is made from.
SHARED_FOLDER = "a path with spaces that is " + "rather long, " * 5
CROWD_FOLDER = "crowd"
VIRTUAL_FOLDER = "virtual"


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
        assert rows, f"Ansible counted nothing: {self.output[-2000:]}"
        return {
            host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)}
            for host, counts in rows
        }

    def changed(self) -> set[str]:
        """The hosts on which Ansible changed something."""
        return {host for host, counts in self.recap().items() if counts["changed"]}

    def announced(self) -> set[str]:
        """Packages, files and services that roles in check mode say they would install, write and start."""
        return set(re.findall(r"^ {8}- (\S+)$", self.output, re.MULTILINE))


#: Some of what every role would do to fresh nodes.
ON_FRESH_NODES = {
    "/etc/docker/daemon.json",
    "/etc/hosts",
    "/etc/nginx/sites-enabled/trainbed-artifacts",
    "/etc/systemd/system/spark-master.service",
    "/opt/trainbed/build-image",
    "/opt/trainbed/install-environment",
    "docker",
    "docker-registry",
    "nginx",
    "spark-worker",
    "squid",
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

    @property
    def state(self) -> Path:
        """Where this machine keeps the testbed's keys and settings."""
        states = self.environment.get("XDG_STATE_HOME") or Path.home() / ".local/state"
        kind = ("vm",) if self.virtual else ()
        return Path(states).joinpath("trainbed", *kind, self.name)

    @property
    def virtual(self) -> bool:
        """Whether its nodes are virtual machines."""
        return dict(self.extra).get("TESTBED_KIND") == "vm"

    def run(
        self,
        *command: str,
        check: bool = True,
        timeout: float = 1500,
        variables: dict[str, str] | None = None,
    ) -> Done:
        """Run a command to its end in the copy of the repository; after `timeout` seconds, kill all of it."""
        began = time.monotonic()
        with self.start(*command, **(variables or {})) as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired as late:
                kill_group(process, signal.SIGKILL)
                output, _ = process.communicate()
                raise AssertionError(
                    f"{' '.join(command)} had not ended after {timeout:.0f} s:\n{output[-6000:]}"
                ) from late
            except BaseException:
                kill_group(process, signal.SIGINT)
                raise
        result = Done(" ".join(command), process.returncode, output, time.monotonic() - began)
        return self._ended(result, check)

    @staticmethod
    def _ended(done: Done, check: bool) -> Done:
        """Print that a command has ended; raise if it failed and `check` is set."""
        print(f"$ {done.command}  [{done.seconds:.0f} s, status {done.code}]")
        if check and done.code != 0:
            raise AssertionError(f"{done.command} ended with {done.code}:\n{done.output[-6000:]}")
        return done

    def make(self, *arguments: str, check: bool = True, **variables: str) -> Done:
        """Call a verb."""
        return self.run("make", "--no-print-directory", *arguments, check=check, variables=variables)

    def playbook(self, name: str, *arguments: str, check: bool = True, **variables: str) -> Done:
        """Call a playbook."""
        return self.run(
            "ansible-playbook", f"playbooks/{name}.yml", *arguments, check=check, variables=variables
        )

    @functools.cached_property
    def connections(self) -> Inventory:
        """How the nodes are reached."""
        return Inventory(self.root, self.environment)

    def node(self, name: str, command: str, check: bool = True) -> Done:
        """Run a shell command as root on one node, over the inventory's SSH; its code is 255 if SSH fails."""
        began = time.monotonic()
        try:
            said = self.connections.node(name).run(f"timeout {NODE_TIMEOUT_S} sh -c %s 2>&1", command)
            output = said.stdout
        except RuntimeError as failed:  # Testinfra raises this if SSH itself fails.
            (said,) = failed.args
            output = said.stderr
        return self._ended(Done(f"{name}: {command}", said.rc, output, time.monotonic() - began), check)

    def machine(self, name: str) -> Machine:
        """The machine under a node, which can be restarted or removed."""
        if self.virtual:
            return Virtual(
                name,
                self.state,
                self.run,
                lambda: self.connections.hang_up(name),
                # A node that goes down may not say how the command ended.
                lambda command: self.node(name, command, check=False),
            )
        return Container(f"{self.name}-{name}", self.run, lambda: self.connections.hang_up(name))

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
        """Take down the testbed and everything that a test could have left."""
        self.make("testbed-down")


def shared_testbed(root: Path) -> Testbed:
    """The testbed that most end-to-end tests share, made by the verbs of this copy of the repository."""
    return Testbed("trainbed-test", "198.18.77", root)


def crowd_testbed(root: Path, stacks: Path = TOY) -> Testbed:
    """The testbed of conformance: four workers with two slots each, and every stack.

    `stacks` is the folder outside the checkout that holds the toy.
    """
    inventory = root / "tests" / "e2e" / "inventories" / "crowd"
    given = (("ANSIBLE_INVENTORY", str(inventory)), ("TRAINBED_STACKS", str(stacks)))
    return Testbed("trainbed-crowd", "198.18.81", root, given)


def virtual_testbed(root: Path) -> Testbed:
    """The testbed of virtual machines, rough as a fixed seed draws them."""
    return machines_testbed("trainbed-vm-test", "198.18.83", root, TESTBED_SEED="1")


def machines_testbed(name: str, prefix: str, root: Path, **variables: str) -> Testbed:
    """A testbed of virtual machines that these variables describe."""
    kind = {"TESTBED_KIND": "vm", "ANSIBLE_INVENTORY": str(root / "inventory" / "vm")}
    return Testbed(name, prefix, root, tuple({**kind, **variables}.items()))


def kept_place() -> Path:
    """Folder of the repository's copy whose testbed is kept between calls."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainbed" / "tests"


def copy_repository(target: Path) -> Path:
    """Copy what a clone would hold, uncommitted changes included, to a path of the test's choosing.

    An earlier copy is replaced, except for its results.
    """
    target.mkdir(parents=True, exist_ok=True)
    for path in target.iterdir():
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif path.name != "results":
            shutil.rmtree(path)
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
    """Send a signal to a process and the rest of its process group."""
    os.killpg(process.pid, number)


def wait_for(condition: str, ready: object, timeout: float) -> None:
    """Wait until `ready()` is true; on a timeout, fail and name the condition."""
    assert callable(ready)
    end = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > end:
            raise AssertionError(f"after {timeout:.0f} s still not: {condition}")
        time.sleep(0.5)
