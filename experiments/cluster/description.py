"""What `playbooks/prepare.yml` reports: the cluster, and the data sets staged on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from experiments.cluster.environment import Image, Link, Node
from experiments.cluster.quiet import QuietLimits
from experiments.matrix.references import Reference, read_references
from experiments.util.errors import UserError
from training.settings import Sha256, canonical
from training.spec import Conditions, DataSpec, explain


class Cluster(BaseModel):
    """cluster.json."""

    model_config = ConfigDict(frozen=True)

    inventory: str
    nodes: dict[str, Node]
    workers: list[str]
    environment_digest: str
    environments: dict[str, str] = Field(default_factory=dict)  # digests of those beside it, by name
    lock: str  # the locked variant of the environment
    image: Image
    link: Link
    pinning: str
    slots_per_worker: int = Field(ge=1)
    threads: int | None = None  # of each rank, as the inventory sets it
    rank_environment: dict[str, Any] = Field(default_factory=dict)  # unvalidated, as the inventory has it
    device: Literal["cpu", "cuda"]
    stacks: list[str]
    stacks_missing: dict[str, str]  # why, in a sentence
    standins: dict[str, str] = Field(default_factory=dict)  # by stack: what it is, in a sentence
    settings: dict[str, Sha256]  # for each stack: digest of the inventory's settings for its runs
    shared_storage_path: str
    shell: list[str] = Field(min_length=1)
    shells: dict[str, list[str]] = Field(default_factory=dict)  # how each node is reached
    quiet: QuietLimits | None = None  # None: a run starts however busy the nodes are
    versions: dict[str, str]
    uid: int | None = None  # of the user that training runs as
    references: Any = Field(default_factory=list)  # unvalidated, as the inventory has them

    @property
    def hardware(self) -> dict[str, str]:
        """Each node in one line. Memory in whole GiB: the kernel's share of it differs from boot to boot."""
        return {
            name: f"{node.cpu}, {node.cores} cores, {round(node.memory_mb / 1024)} GiB, {node.distribution}, "
            f"kernel {node.kernel}, Python {node.python}, Docker {node.docker}, {node.java}, "
            f"virtualisation {node.virtualization}"
            + "".join(f", {gpu.name} ({gpu.uuid}), driver {gpu.driver}" for gpu in node.gpus)
            for name, node in self.nodes.items()
        }

    @property
    def machines(self) -> dict[str, str]:
        """Digest of each node's machine id, where known."""
        return {name: node.machine for name, node in self.nodes.items() if node.machine}


class Dataset(BaseModel):
    """A dataset.json, as `training prepare` wrote it; only the fields used here are declared."""

    model_config = ConfigDict(frozen=True, extra="allow")

    digest: Sha256
    spec: dict[str, Any]


class PreparedCluster(BaseModel):
    """What is ready when prepare.yml is done."""

    model_config = ConfigDict(frozen=True)

    cluster: Cluster
    datasets: list[Dataset] = Field(min_length=1)
    data_digests: dict[str, Sha256]  # of the data sets, by the digest of their specifications
    references: list[Reference]


Model = TypeVar("Model", bound=BaseModel)


def read_prepared(folder: Path, requested: Sequence[DataSpec]) -> PreparedCluster:
    """What prepare.yml left in `folder`.

    Raises:
        UserError: a file is missing or not valid, a data set is not the requested one, or the inventory's
            references or variables of ranks are not valid.
    """
    # The playbook may report more than is used here.
    cluster = read_json(Cluster, folder / "cluster.json", "playbooks/prepare.yml", extra="ignore")
    datasets = []
    for number, asked in enumerate(requested, start=1):
        dataset = read_json(Dataset, folder / f"dataset-{number}.json", "playbooks/prepare.yml")
        if dataset.spec != canonical(asked.data):
            raise UserError(
                "playbooks/prepare.yml did not prepare the matrix's data set, but another one: "
                f"{dataset.spec}."
            )
        datasets.append(dataset)
    try:
        Conditions(rank_environment=cluster.rank_environment)
    except ValidationError as error:
        raise UserError(explain(error, "What the inventory sets")) from error
    return PreparedCluster(
        cluster=cluster,
        datasets=datasets,
        data_digests={
            asked.digest: dataset.digest for asked, dataset in zip(requested, datasets, strict=True)
        },
        references=read_references(cluster.references),
    )


def read_json(kind: type[Model], path: Path, writer: str, *, extra: Literal["ignore"] | None = None) -> Model:
    """The `kind` in the JSON file `path` that `writer` leaves.

    `extra`: how to treat fields that `kind` does not have (default: as `kind` itself says).

    Raises:
        UserError: the file can't be read or is not valid.
    """
    try:
        return kind.model_validate_json(path.read_bytes(), extra=extra)
    except OSError as error:
        raise UserError(f"{writer} left no readable {path.name}: {error.strerror} ({path}).") from error
    except ValidationError as error:
        raise UserError(explain(error, f"{path.name}, as {writer} left it,")) from error
