"""A campaign's identity: runs belong together only while all of it is the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from experiments.campaign.code_archive import launching_digest
from experiments.campaign.plan import PlannedRun
from experiments.cluster.description import PreparedCluster
from experiments.cluster.environment import beside
from experiments.matrix.model import Matrix
from experiments.util.errors import UserError
from experiments.util.models import FrozenModel
from training.settings import Sha256
from training.spec import RunSpec


class Identity(FrozenModel):
    """Everything that must be the same for runs to belong together."""

    matrix: dict[str, Any]  # its content, without what only the report reads
    code: Sha256
    environment: str
    launching: Sha256  # of the roles and the playbook that launch runs of the matrix's stacks
    image: str | None
    dataset: Sha256  # if there are several, the first
    hardware: dict[str, str]
    workers: list[str]  # in the order in which runs take them
    settings: dict[str, Sha256]  # digest of the inventory's settings, for each stack
    stacks: list[str]  # those on the cluster
    runs: list[str]  # run ids, which depend on the cluster's pinning, link, device and slots
    launching_of: dict[str, Sha256] = Field(default_factory=dict)  # `launching` of each stack alone
    datasets: list[Sha256] = Field(default_factory=list)  # all, if there are several
    # Digest of each node's machine id, where known: nodes of two labs may have the same names.
    machines: dict[str, str] = Field(default_factory=dict)
    standins: list[str] = Field(default_factory=list)  # for which of its stacks one is run
    environments: dict[str, str] = Field(
        default_factory=dict
    )  # those beside it that its runs are in, by name

    def differences(self, other: Identity) -> list[str]:
        """What is different in `other`, in words."""
        words = {
            "matrix": "the matrix",
            "code": "the training code",
            "launching": "how runs are launched",
            "environment": "the environment",
            "environments": "an environment beside the cluster's",
            "image": "the image",
            "dataset": "the data set",
            "datasets": "the data sets",
            "hardware": "the nodes",
            "machines": "the machines",
            "workers": "the order of the workers",
            "settings": "the inventory's settings for the stacks",
            "stacks": "the stacks on the cluster",
            "standins": "which stacks a stand-in is run for",
            "runs": "the conditions on the cluster",
        }
        changed = [name for name in words if getattr(self, name) != getattr(other, name)]
        if not _rearranged(self.machines, other.machines):
            changed = [name for name in changed if name != "machines"]
        if {"dataset", "datasets"} <= set(changed):
            changed.remove("dataset")
        if len(changed) > 1 and ({"matrix", "dataset", "datasets"} & set(changed)):
            # Then the run ids differ anyway, and naming them adds nothing.
            changed = [name for name in changed if name != "runs"]
        return [words[name] for name in changed]

    def launches_alike(self, other: Identity, specification: RunSpec) -> bool:
        """Whether a run of this specification would be the same run in `other`."""
        stack, own = specification.stack, beside(specification)
        same = ("code", "environment", "image", "hardware", "workers", "stacks")
        if any(getattr(self, name) != getattr(other, name) for name in same):
            return False
        if _rearranged(self.machines, other.machines):
            return False
        if (stack in self.standins) != (stack in other.standins):
            return False
        if self.environments.get(own) != other.environments.get(own):
            return False
        if self.settings.get(stack) != other.settings.get(stack):
            return False
        ours, theirs = self.launching_of.get(stack), other.launching_of.get(stack)
        return self.launching == other.launching if None in (ours, theirs) else ours == theirs


def are_others(machines: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether two inventories are known to have different sets of machines, whatever their nodes' names.

    Of campaigns of earlier versions no machine is known: they are judged by all the rest.
    """
    return bool(machines and others) and set(machines.values()) != set(others.values())


def may_share_some(machines: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether two inventories have a machine in common, as far as that is known."""
    return not machines or not others or bool(set(machines.values()) & set(others.values()))


def _rearranged(machines: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether the machines are others, or have changed their places: then runs are not the same runs."""
    both = machines.keys() & others.keys()
    return are_others(machines, others) or any(machines[name] != others[name] for name in both)


def identity_of(
    root: Path, matrix: Matrix, prepared: PreparedCluster, code_digest: str, plan: list[PlannedRun]
) -> Identity:
    """The identity of a campaign of `matrix`, with the repository and the cluster as they are now."""
    cluster, datasets = prepared.cluster, [dataset.digest for dataset in prepared.datasets]
    environments = {beside(run.specification) for run in plan} & cluster.environments.keys()
    return Identity(
        matrix=matrix.content(),
        code=code_digest,
        launching=launching_digest(root, matrix.stacks),
        environment=cluster.environment_digest,
        image=cluster.image.id,
        dataset=datasets[0],
        hardware=cluster.hardware,
        workers=cluster.workers,
        settings={stack: cluster.settings[stack] for stack in matrix.stacks if stack in cluster.settings},
        stacks=sorted(cluster.stacks),
        runs=[run.run_id for run in plan],
        machines=cluster.machines,
        launching_of={stack: launching_digest(root, [stack]) for stack in matrix.stacks},
        datasets=datasets if len(datasets) > 1 else [],
        standins=[stack for stack in matrix.stacks if stack in cluster.standins],
        environments={name: cluster.environments[name] for name in sorted(environments)},
    )


def refuse_changed_launching(root: Path, identity: Identity, name: str) -> None:
    """Refuses to start the runs `name` if they would be launched differently from the campaign's other runs.

    Each run reads the playbook and the roles from the checkout, and no record says which version it used.

    Raises:
        UserError: the playbook or a role has changed.
    """
    if launching_digest(root, identity.matrix["axes"]["stack"]) != identity.launching:
        raise UserError(
            f"{name} was not started: how runs are launched (playbooks/run.yml and the roles) has changed "
            "since this command began. The same command resumes once that is changed back; otherwise it "
            "starts a new campaign."
        )
