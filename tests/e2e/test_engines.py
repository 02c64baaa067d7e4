"""Nodes on a cgroup v2 host, and a killed engine: both on a second engine beside the machine's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.machines import ENGINE, engine_at
from tests.e2e.testbeds import Testbed, copy_repository, wait_for

pytestmark = pytest.mark.wide

SECRET = "s3kret-8d1f"
START = ENGINE / "engine-start"
IN_CGROUP2 = 'umount --recursive /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"'


class Engine:
    """A second engine in a mount namespace of its own, where /sys/fs/cgroup is cgroup v2 only."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.socket = f"unix://{root}/docker.sock"

    def start(self) -> None:
        """Start it as `make testbed` starts one."""
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_CGROUP2, "sh"]
        subprocess.run(
            [*command, str(START), str(self.root / "dockerd.log"), str(self.root)], check=True, timeout=120
        )

    def docker(self, *arguments: str) -> str:
        """Run one of Docker's commands on it."""
        return subprocess.run(
            ["docker", "--host", self.socket, *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.strip()

    def kill(self) -> None:
        """Kill it and its containerd outright, like a power cut."""
        for file in (self.root / "docker.pid", self.root / "run" / "containerd" / "containerd.pid"):
            pid = int(file.read_text(encoding="ascii"))
            # containerd may have gone with dockerd.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_for(f"process {pid} is gone", lambda pid=pid: not Path(f"/proc/{pid}").exists(), 20)

    def stop(self) -> None:
        """Stop it with everything in it, including what a killed engine left running."""
        if not self.root.exists():
            return
        if subprocess.run(
            ["docker", "--host", self.socket, "info"], capture_output=True, check=False
        ).returncode:
            self.start()
        for container in self.docker("ps", "--all", "--quiet").split():
            self.docker("rm", "--force", container)
        for network in self.docker("network", "ls", "--quiet", "--filter", "type=custom").split():
            self.docker("network", "rm", network)
        found = subprocess.run(
            ["pgrep", "--full", "--", f"--data-root {self.root}/data"], capture_output=True, check=False
        )
        for pid in map(int, found.stdout.split()):
            os.kill(pid, signal.SIGTERM)
            wait_for("the engine has stopped", lambda pid=pid: not Path(f"/proc/{pid}").exists(), 60)
        wait_for("its directory can be removed", self.removed, 20)

    def removed(self) -> bool:
        """Remove its directory; a mount may take a moment to go."""
        shutil.rmtree(self.root, ignore_errors=True)
        return not self.root.exists()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The second engine."""
    if os.geteuid() != 0:
        pytest.skip("a second engine needs root")
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip(
            "this machine has cgroup v2, so the other end-to-end tests ran on it; v1 can't be added beside it"
        )
    # A short path, as sockets require. A killed test run may have left its engine there.
    second = Engine(Path("/var/tmp/trainbed-test-engine"))
    second.stop()
    second.root.mkdir()
    second.start()
    yield second
    second.stop()


@pytest.fixture(scope="module")
def nodes(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """A testbed on the second engine, on a machine whose pip settings hold a password."""
    extra = (
        ("DOCKER_HOST", engine.socket),
        ("PIP_EXTRA_INDEX_URL", f"http://ada:{SECRET}@198.18.78.250/simple"),
    )
    root = tmp_path_factory.mktemp("engines") / "trainbed"
    bed = Testbed("trainbed-v2", "198.18.78", copy_repository(root), extra)
    yield bed
    bed.down()


def test_nodes_boot_on_cgroup_v2_and_no_password_is_shown(engine: Engine, nodes: Testbed) -> None:
    assert engine.docker("info", "--format", "{{.CgroupVersion}}") == "2"
    done = nodes.make("testbed")
    assert SECRET not in done.output
    states = nodes.ansible("cluster", "systemctl is-system-running").output
    assert states.count("running") == 3


def test_a_password_reaches_the_master_alone_and_no_image(
    engine: Engine, nodes: Testbed, tmp_path: Path
) -> None:
    assert SECRET in nodes.node("master", "cat /etc/pip.conf").output
    assert nodes.node("master", "stat --format '%a %U' /etc/pip.conf").output.strip() == "600 root"
    assert nodes.node("worker1", f"grep -r {SECRET} /etc --exclude-dir=testbed", check=False).code == 1
    image = engine.docker("inspect", "--format", "{{.Image}}", f"{nodes.name}-master")
    archive = tmp_path / "image.tar"
    engine.docker("save", "--output", str(archive), image)
    assert subprocess.run(["grep", "--quiet", "--text", SECRET, str(archive)], check=False).returncode == 1
    assert SECRET not in engine.docker("inspect", f"{nodes.name}-master")


def test_survives_an_engine_that_was_killed(engine: Engine, nodes: Testbed) -> None:
    engine.kill()
    # When the engine starts again, its old process ids belong to another process.
    (engine.root / "docker.pid").write_text(str(os.getpid()), encoding="ascii")
    (engine.root / "run" / "containerd" / "containerd.pid").write_text(str(os.getpid()), encoding="ascii")
    engine.start()
    nodes.make("testbed")
    states = nodes.ansible("cluster", "systemctl is-system-running").output
    assert states.count("running") == 3


def test_taking_them_down_leaves_the_machines_own_engine_alone(nodes: Testbed) -> None:
    state = Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local/state"))
    with engine_at(state / "trainbed" / "engine"):  # as `make testbed` starts it
        nodes.down()
        own = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
        assert subprocess.run(["docker", "info"], env=own, capture_output=True, check=False).returncode == 0
