"""What a campaign is made of: runs belong together only while all of that is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from experiments.campaign.code_archive import launching_digest
from experiments.campaign.plan import PlannedRun
from experiments.cluster.description import PreparedCluster
from experiments.matrix.model import Matrix
from experiments.util.errors import UserError
from training.spec import Sha256


class Identity(BaseModel):
    """What must be the same for runs to belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    matrix: dict[str, Any]  # its content, without description and ladders
    code: Sha256
    environment: str
    launching: Sha256  # of the roles and the playbook that launch runs of the matrix's stacks
    image: str | None
    dataset: Sha256
    hardware: dict[str, str]
    workers: list[str]  # in the order in which ranks get them
    settings: dict[str, Sha256]  # digest of what the inventory sets, for each stack
    stacks: list[str]  # those that the cluster has
    runs: list[str]  # the ids: pinning, link, device and slots of the cluster are in them

    def differences(self, other: Identity) -> list[str]:
        """What is different in `other`, in words."""
        words = {
            "matrix": "the matrix",
            "code": "the training code",
            "launching": "how runs are launched",
            "environment": "the environment",
            "image": "the image",
            "dataset": "the data set",
            "hardware": "the nodes",
            "workers": "the order of the workers",
            "settings": "what the inventory sets of the stacks",
            "stacks": "the stacks on the cluster",
            "runs": "the conditions on the cluster",
        }
        changed = [name for name in words if getattr(self, name) != getattr(other, name)]
        if len(changed) > 1 and ({"matrix", "dataset"} & set(changed)):
            # Then the ids differ anyway, and say nothing more.
            changed = [name for name in changed if name != "runs"]
        return [words[name] for name in changed]


def identity_of(
    root: Path, matrix: Matrix, prepared: PreparedCluster, code_digest: str, plan: list[PlannedRun]
) -> Identity:
    """What a campaign of `matrix` would be made of, with the repository and the cluster as they are."""
    cluster = prepared.cluster
    return Identity(
        matrix=matrix.content(),
        code=code_digest,
        launching=launching_digest(root, matrix.stacks),
        environment=cluster.environment_digest,
        image=cluster.image.id,
        dataset=prepared.dataset.digest,
        hardware=cluster.hardware,
        workers=cluster.workers,
        settings={stack: cluster.settings[stack] for stack in matrix.stacks if stack in cluster.settings},
        stacks=sorted(cluster.stacks),
        runs=[run.run_id for run in plan],
    )


def refuse_changed_launching(root: Path, identity: Identity, name: str) -> None:
    """Refuses to start the runs of that name if they would be launched otherwise than the campaign's.

    Playbook and roles are read from the checkout for every run, and no record says which they were.

    Raises:
        UserError: they have changed.
    """
    if launching_digest(root, identity.matrix["axes"]["stack"]) != identity.launching:
        raise UserError(
            f"{name} was not started: how runs are launched (playbooks/run.yml and the roles) has changed "
            "since this command began. Change it back, and the same command resumes; as it is, it starts a "
            "new campaign."
        )
