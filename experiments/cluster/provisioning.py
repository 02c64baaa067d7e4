"""Records of provisioning, as `playbooks/callback_plugins/provisioning_record.py` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, Field, ValidationError

from experiments.cluster.description import Cluster
from experiments.cluster.provenance import Git
from experiments.util.errors import UserError
from experiments.util.models import FrozenModel
from training.spec import explain

FOLDER: Final = "provisioning"  # in the folder of all results
FILE: Final = "provisioning.json"  # in a campaign's folder


class RoleDone(FrozenModel):
    """What a role did, called from the roles `within` (the outermost first)."""

    role: str
    within: list[str]
    seconds: float = Field(ge=0)  # by the controller's clock, while its tasks ran on any host
    tasks: int = Field(ge=0)  # those that ran on at least one host
    changed: dict[str, int]  # tasks that changed something, by host; hosts without any are left out
    failed: list[str]  # hosts
    tasks_by_host: dict[str, int] = Field(default_factory=dict)  # those that ran there; since schema 2
    seconds_by_host: dict[str, float] = Field(default_factory=dict)  # while they ran there; since schema 2

    @property
    def outermost(self) -> str:
        """The role that the playbook itself ran."""
        return [*self.within, self.role][0]


@dataclass(frozen=True)
class Effort:
    """What some roles took in one provisioning, on all hosts or on one."""

    tasks: int
    changes: int  # counted per task and host
    seconds: float


class Provisioning(FrozenModel):
    """One run of playbooks/provision.yml."""

    schema_version: Literal[1, 2]
    inventory: str
    nodes: dict[str, str]  # address by name
    variables: dict[str, Any]  # those that the playbook names; none is a secret
    environment_digest: str | None  # None if it ended before one was installed
    started: AwareDatetime
    ended: AwareDatetime
    status: Literal["ok", "failed"]
    partial: list[str]  # options that left out parts of it
    roles: list[RoleDone]
    ansible: str
    git: Git

    @property
    def seconds(self) -> float:
        """From start to end."""
        return (self.ended - self.started).total_seconds()

    def fits(self, cluster: Cluster) -> bool:
        """Whether it set up the whole of `cluster` as it is now."""
        return (
            self.status == "ok"
            and not self.partial
            and self.inventory == cluster.inventory
            and self.nodes == {name: node.address for name, node in cluster.nodes.items()}
            and self.environment_digest == cluster.environment_digest
        )

    def of(self, roles: Sequence[str]) -> list[RoleDone]:
        """What `roles` did, and the roles that they called."""
        return [done for done in self.roles if done.outermost in roles]

    def effort(self, roles: Sequence[str]) -> Effort | None:
        """What `roles` and the roles that they called took in total; None if none of them ran."""
        done = self.of(roles)
        if not done:
            return None
        return Effort(
            tasks=sum(each.tasks for each in done),
            changes=sum(sum(each.changed.values()) for each in done),
            seconds=sum(each.seconds for each in done),
        )

    def slowest(self, hosts: Sequence[str], roles: Sequence[str]) -> Effort | None:
        """What they took on the slowest of `hosts`; None if the record does not say."""
        done = self.of(roles)
        if not done or not hosts or self.schema_version == 1:
            return None
        efforts = [
            Effort(
                tasks=sum(each.tasks_by_host.get(host, 0) for each in done),
                changes=sum(each.changed.get(host, 0) for each in done),
                seconds=sum(each.seconds_by_host.get(host, 0.0) for each in done),
            )
            for host in hosts
        ]
        return max(efforts, key=lambda effort: effort.seconds)

    @property
    def played(self) -> list[str]:
        """The roles that the playbook itself ran, in order; not those that only other roles called."""
        return list(dict.fromkeys(each.outermost for each in self.roles))


def newest_fitting(results: Path, cluster: Cluster) -> bytes | None:
    """The newest record in `results` (of all matrices) of how `cluster` was set up; None if there is none.

    Raises:
        UserError: a record newer than the newest fitting one is damaged.
    """
    for path in sorted((results / FOLDER).glob("[0-9]*.json"), reverse=True):
        content = _read(path)
        if parse(content, path).fits(cluster):
            return content
    return None


def newest_of(results: Path, inventory: str, nodes: Mapping[str, str]) -> Provisioning | None:
    """The newest record in `results` of provisioning these nodes, however it ended; None if there is none.

    Args:
        results: the folder of all results.
        inventory: its name.
        nodes: their addresses by name.

    Raises:
        UserError: a newer record is damaged.
    """
    for path in sorted((results / FOLDER).glob("[0-9]*.json"), reverse=True):
        found = parse(_read(path), path)
        if (found.inventory, found.nodes) == (inventory, dict(nodes)):
            return found
    return None


def read_provisioning(folder: Path) -> Provisioning | None:
    """The record that a campaign keeps; None if there was none when it began.

    Raises:
        UserError: it is damaged.
    """
    path = folder / FILE
    return parse(_read(path), path) if path.exists() else None


def parse(content: bytes, path: Path) -> Provisioning:
    """The record in `content`; `path` is only for the message.

    Raises:
        UserError: it is not valid.
    """
    try:
        return Provisioning.model_validate_json(content)
    except ValidationError as error:
        raise UserError(
            explain(error, f"The record of provisioning {path}") + " Move it away; reports work without it."
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"The record of provisioning {path} can't be read: {error.strerror}.") from error
