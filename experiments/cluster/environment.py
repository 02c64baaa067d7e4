"""The description of a cluster in a record."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from experiments.cluster.provenance import Git
from experiments.util.models import FiniteModel
from training.spec import RunSpec

LOCKED: Final = "locked"  # the condition libraries of runs in the cluster's environment
NEWEST: Final = "newest"
"""The environment of runs with `libraries: newest`, by the name of the link to it."""


class Gpu(FiniteModel):
    """One GPU of a machine, as its driver names it."""

    index: str
    uuid: str
    name: str
    memory_mb: int | None
    capability: str | None  # compute capability
    mig: bool
    driver: str | None
    pseudo: bool  # declared to rehearse the scheduling of GPUs; there is no hardware


class Node(FiniteModel):
    """One machine of the cluster."""

    address: str
    groups: list[str]
    distribution: str
    kernel: str
    cpu: str
    cores: int  # that training may use, not all that the machine has
    memory_mb: int
    python: str
    environment_digest: str | None
    docker: str | None
    java: str | None
    virtualization: str | None
    machine: str | None = None  # digest of its machine id; None: it has none, or was not asked
    torch: str | None = None  # its version and build
    gpus: list[Gpu] = Field(default_factory=list)
    compiles: bool = False  # whether it has a C++ compiler, and the headers of its Python
    slots: int | None = None  # that it offers for ranks; 0 on a node that is no worker


class Image(FiniteModel):
    """The container image that every worker has."""

    reference: str | None  # None: no stack of this cluster has put it on the workers
    id: str | None


class Link(FiniteModel):
    """The network between two nodes: what it was set to, and what was measured."""

    configured: str | None  # e.g. "1gbit"; None = not limited
    measured_mbit: float | None
    between: list[str]


class Environment(FiniteModel):
    """What the run ran on and with."""

    inventory: str
    nodes: dict[str, Node]
    workers: list[str]
    environment_digest: str
    # Digests of those beside it: stacks' own, by stack, and NEWEST.
    environments: dict[str, str] = Field(default_factory=dict)
    lock: str
    image: Image
    link: Link
    pinning: str
    slots_per_worker: int
    device: str
    versions: dict[str, str]
    git: Git  # of the controller's checkout

    def digest_for(self, specification: RunSpec) -> str:
        """Digest of the environment that a run's ranks are in: one beside the cluster's, or else that one."""
        return self.environments.get(beside(specification), self.environment_digest)


def beside(specification: RunSpec) -> str:
    """By which name a run's environment is known, where it is one beside the cluster's."""
    return NEWEST if specification.conditions.libraries == "newest" else specification.stack
