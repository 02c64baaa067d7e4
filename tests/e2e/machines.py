"""The machines under a testbed's nodes: what tests do to a node from outside, without its cooperation."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import psutil

ROLES = Path(__file__).resolve().parents[2] / "roles"
ENGINE = ROLES / "testbed" / "files"
MACHINES = ROLES / "testbed_vm" / "files"


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

    def mount(self, device: str, place: str) -> None:
        """Mount a block device of this host, which the node itself may not open, over one of its folders.

        The disk's root gets the folder's owner and mode.
        """
        number = Path(device).stat().st_rdev
        node = f"/dev/{Path(device).name}"
        self._in_its_mounts(
            f"mknod {node} b {os.major(number)} {os.minor(number)} && was=$(stat -c '%u:%g %a' {place}) && "
            f"mount {node} {place} && chown ${{was% *}} {place} && chmod ${{was#* }} {place}; "
            f"status=$?; rm -f {node}; exit $status"
        )

    def unmount(self, place: str) -> None:
        """Undo `mount`."""
        self._in_its_mounts(f"umount {place}")

    def _in_its_mounts(self, command: str) -> None:
        asked = ["docker", "inspect", "--format", "{{.State.Pid}}", self._name]
        pid = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        self._run("nsenter", "--target", pid, "--mount", "sh", "-c", command)


@contextlib.contextmanager
def small_disk(nodes: Iterable[Container], place: str, megabytes: int, folder: Path) -> Iterator[None]:
    """Mount one new disk, whose file lies in `folder`, over a folder that nodes share: a test may fill it."""
    file = folder / "disk.img"
    with file.open("wb") as empty:
        empty.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", file], check=True)
    attached = subprocess.run(
        ["losetup", "--find", "--show", file], capture_output=True, text=True, check=True
    )
    device = attached.stdout.strip()
    with contextlib.ExitStack() as undone:
        undone.callback(subprocess.run, ["losetup", "--detach", device], check=True)
        for node in nodes:
            node.mount(device, place)
            undone.callback(node.unmount, place)
        yield


class Virtual:
    """A machine with a kernel of its own."""

    def __init__(
        self,
        name: str,
        state: Path,
        run: Callable[..., object],
        hang_up: Callable[[], None],
        shell: Callable[..., object],
    ) -> None:
        """`shell` runs a command on the node as root, over SSH; for the rest see `Container`."""
        self._name = name
        self._disk = state / "machines" / name / "disk.img"
        self._state = state
        self._run = run
        self._hang_up = hang_up
        self._shell = shell

    def _machines(self, verb: str) -> None:
        self._hang_up()
        self._run(
            "env",
            f"PYTHONPATH={MACHINES}",
            sys.executable,
            "-m",
            "trainbed_machines",
            verb,
            str(self._state),
            "--cache",
            str(cache()),
            "--node",
            self._name,
        )

    def restart(self) -> None:
        """Reboot it; returns once it has gone down."""
        # The node's own clock and boot are its own: only a new boot id tells that it was away.
        self._shell("systemctl --no-block reboot")
        self._hang_up()

    def power_off(self) -> None:
        """Shut it down."""
        self._shell("systemctl --no-block poweroff")
        self._hang_up()
        end = time.monotonic() + 180
        while programs(str(self._disk)):
            assert time.monotonic() < end, f"{self._name} does not shut down"
            time.sleep(0.5)

    def power_on(self) -> None:
        """Start it."""
        self._machines("start")

    def pull_the_plug(self) -> None:
        """Kill all its processes."""
        self._machines("kill")

    def remove(self) -> None:
        """Kill it and delete its disk."""
        self._machines("kill")
        self._disk.unlink()

    def console(self, command: str) -> None:
        """These machines have none that takes commands."""
        raise NotImplementedError(f"{self._name} has no console for: {command}")


def cache() -> Path:
    """Where base systems, and disks with what masters fetched, are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainbed" / "machines"


def programs(of: str) -> list[str]:
    """Command lines of the virtual machines on this host that contain this text."""
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if line.startswith(("linux.uml", "qemu-system")) and of in line]


def virtual_remains(prefix: str) -> list[str]:
    """Interfaces, rules and processes of a testbed of virtual machines that are left on their host."""
    first, second, third = prefix.split(".")
    name = f"tb-{int(first) % 10}{second}-{third}"
    found = subprocess.run(
        ["ip", "-o", "link"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found += subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in [*found, *programs(name)] if name in line]


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
