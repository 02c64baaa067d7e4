"""On which workers a run goes, if its stack leaves that to the plan (`placement: given` of its role)."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from experiments.cluster.abilities import why_not_given_workers
from experiments.cluster.description import Cluster
from training.spec import RunSpec


def given_nodes(
    specification: RunSpec, cluster: Cluster, turn: int = 0, roles: Path | None = None
) -> list[str]:
    """The workers that the plan gives a run, rank 0's first; empty if its stack chooses them itself.

    A run on fewer workers than there are begins with another one at each turn. At the same turn, a smaller
    run has the first ones of a larger run's.

    Args:
        specification: the run.
        cluster: where it is to run.
        turn: 0, 1, …
        roles: the folder of its stack's role, if that is not among the checkout's or the outside folder's.

    Raises:
        UserError: the stack's declaration can't be read.
    """
    if why_not_given_workers(specification.stack, roles) is not None:
        return []
    workers, rank_0 = specification.work.workers, specification.conditions.rank_0
    masters = _masters(cluster)
    order = deque(name for name in cluster.workers if rank_0 == "any" or name not in masters)
    if workers < len(cluster.workers):
        order.rotate(-turn)
    return [*(masters if rank_0 == "master" else []), *order][:workers]


def why_no_rank_0(specification: RunSpec, cluster: Cluster, roles: Path | None = None) -> list[str]:
    """Why rank 0 can't be where the run's conditions want it; empty if it can, or may be anywhere.

    Raises:
        UserError: the stack's declaration can't be read.
    """
    stack, workers, rank_0 = specification.stack, specification.work.workers, specification.conditions.rank_0
    if rank_0 == "any":
        return []
    if (choice := why_not_given_workers(stack, roles)) is not None:
        return [f"{stack} can't have rank_0 {rank_0}: {choice}"]
    masters = _masters(cluster)
    if rank_0 == "master" and not masters:
        return [
            "with rank_0 master the inventory's master must be one of its workers, too, and it is not; take "
            "an inventory like inventory/master-works"
        ]
    others = len(cluster.workers) - len(masters)
    if rank_0 == "worker" and others < workers <= len(cluster.workers):
        return [
            f"with rank_0 worker the master takes no part, and of the {workers} workers that it takes the "
            f"inventory has {others} besides the master"
        ]
    return []


def _masters(cluster: Cluster) -> list[str]:
    """The master, if it is a worker, too."""
    masters = {name for name, node in cluster.nodes.items() if "master" in node.groups}
    return [name for name in cluster.workers if name in masters]
