"""The state of the cluster as playbooks/status.yml reads it: for people who look, not for records."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from experiments.cluster.environment import Gpu
from experiments.cluster.playbooks import Playbooks, failure_message, last_lines
from experiments.util.errors import UserError
from experiments.util.models import FrozenModel
from experiments.util.processes import is_alive, this_boot
from training.spec import explain

CLOCK_S: Final = 0.1  # seconds that are no difference between clocks
PID_NAMESPACE: Final = Path("/proc/self/ns/pid")


class Disk(FrozenModel):
    """One file system."""

    mount: str
    size_mb: int
    free_mb: int


class Clock(FrozenModel):
    """Who sets a node's clock, and how far off it is by that account."""

    by: str
    source: str | None
    synchronised: bool
    offset_s: float | None


class Described(FrozenModel, extra="ignore"):
    """What the role cluster_facts says of a node in records, too; None: not installed."""

    distribution: str
    kernel: str
    cpu: str
    cores: int
    memory_mb: int
    python: str
    torch: str | None
    environment_digest: str | None
    lock: str | None = None  # that the environment was made from
    docker: str | None
    java: str | None
    virtualization: str
    image: str | None
    image_id: str | None


class Lock(FrozenModel, extra="ignore"):
    """The holder of the cluster's lock, as far as its file says who that is."""

    verb: str = "?"
    user: str = "?"
    host: str = "?"
    pid: int = 0
    since: str = "?"
    started: str = ""
    boot: str = ""
    pid_namespace: str | None = None

    @property
    def ended(self) -> bool:
        """Whether its process was one of this machine's and has ended."""
        here = self.boot == this_boot()
        ours = self.pid_namespace in (None, str(PID_NAMESPACE.readlink()))
        return here and ours and not is_alive({"pid": self.pid, "start": self.started, "boot": self.boot})

    @property
    def before_restart(self) -> bool:
        """Whether its process was on a machine of this one's name, in another boot."""
        return self.host == socket.gethostname() and self.boot not in ("", this_boot())


class Stacks(FrozenModel, extra="ignore"):
    """Which stacks were installed, and why others were left out."""

    stacks: list[str] = Field(default_factory=list)
    left_out: dict[str, str] = Field(default_factory=dict)


class Gpus(FrozenModel, extra="ignore"):
    """A node's GPUs."""

    pci: list[str]
    gpus: list[Gpu]
    trouble: str | None


class State(FrozenModel):
    """What a node says of itself."""

    host: str
    asked: float  # Unix seconds by the controller's clock, before the node was reached
    time: float  # Unix seconds by its own, once it was
    up_s: float
    load: float  # processes that ran or waited to, averaged over a minute
    described: Described | None  # None: it did not answer in time
    disks: list[Disk]
    failed_units: list[str] | None  # None: systemd does not answer
    clock: Clock | None  # None: no program sets it
    packages: dict[str, str]  # of the environment
    stacks: Stacks | None  # of a provisioned master
    lock: Lock | None  # of a master whose lock is held
    gpus: Gpus | None  # None: the driver did not answer in time


class NodeStatus(FrozenModel):
    """One node of the inventory."""

    address: str
    groups: list[str]
    trouble: str | None  # why it could not be asked
    state: State | None


class ClusterStatus(FrozenModel):
    """All of it."""

    inventory: str
    device: str  # that the inventory gives to ranks: cpu or cuda; empty without nodes
    answered: float  # Unix seconds by the controller's clock, once all nodes had answered
    nodes: dict[str, NodeStatus]

    @property
    def addresses(self) -> dict[str, str]:
        """The nodes' addresses by name."""
        return {name: node.address for name, node in self.nodes.items()}

    @property
    def master(self) -> State | None:
        """The master's state; None if it is unknown."""
        return next((node.state for node in self.nodes.values() if "master" in node.groups), None)


def read_status(playbooks: Playbooks) -> ClusterStatus:
    """Asks every node.

    Raises:
        UserError: the inventory can't be used.
        Interrupted: a signal came meanwhile.
    """
    if playbooks.screen.is_terminal:
        playbooks.screen.status("asking the nodes")
    with tempfile.TemporaryDirectory(prefix="trainbed-status-") as name:
        found, log = Path(name) / "status.json", Path(name) / "status.log"
        playbooks.play("status", log, {"status_dest": str(found)})
        playbooks.screen.clear_status()
        if not found.exists():
            shown = "\n".join(f"  {line}" for line in last_lines(log))
            raise UserError(f"{shown}\nThe cluster could not be asked: {failure_message(log) or 'see above'}")
        return parse(found.read_bytes())


def parse(content: bytes) -> ClusterStatus:
    """The state in `content`.

    Raises:
        UserError: the nodes answered something else, or there is none.
    """
    try:
        status = ClusterStatus.model_validate_json(content)
    except ValidationError as error:
        raise UserError(explain(error, "The nodes' answer")) from error
    if not status.nodes:
        raise UserError(
            f"The inventory {status.inventory} is not there, or has no host in the group 'cluster': correct "
            "it, or ANSIBLE_INVENTORY."
        )
    return status


def explain_clock(state: State, answered: float) -> str:
    """A node's clock in a few words; `answered`: the controller's, once all nodes had answered."""
    # By how much at least: the node's clock was read between the two moments of the controller's.
    behind, ahead = state.asked - state.time, state.time - answered
    if behind > CLOCK_S:
        return f"{behind:.1f} s behind"
    if ahead > CLOCK_S:
        return f"{ahead:.1f} s ahead"
    clock = state.clock
    if clock is None:
        return "no NTP"
    if not clock.synchronised:
        return f"{clock.by}: not synchronised"
    return f"{1000 * abs(clock.offset_s):.1f} ms off" if clock.offset_s is not None else f"set by {clock.by}"


def shared(values: dict[str, Any]) -> str:
    """A value that all nodes have, or who has which: `a (master), b (worker1, worker2)`."""
    by_value: dict[str, list[str]] = {}
    for name, value in values.items():
        by_value.setdefault(str(value), []).append(name)
    if len(by_value) == 1:
        return next(iter(by_value))
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items())
