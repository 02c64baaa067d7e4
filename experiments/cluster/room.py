"""Whether workers have room for a run, and how they differ: in a lab no two need be alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from experiments.cluster.abilities import why_not_fewer_pseudo_gpus, why_not_given_workers
from experiments.cluster.description import Cluster
from experiments.cluster.environment import Node
from experiments.cluster.placement import given_nodes
from experiments.util.words import counted, listed
from training.spec import RunSpec

SAME_MEMORY: Final = 0.95  # of alike machines, whose kernels keep a little more or less for themselves


def why_no_room(specification: RunSpec, cluster: Cluster, roles: Path | None = None) -> list[str]:
    """Why workers that a run may be put on have too few cores or GPUs for it; empty if they have enough.

    Args:
        specification: the run.
        cluster: where it is to run.
        roles: the folder of its stack's role, if that is not among the checkout's or the outside folder's.

    Raises:
        UserError: the stack's declaration can't be read.
    """
    stack, work, conditions = specification.stack, specification.work, specification.conditions
    choice = why_not_given_workers(stack, roles)
    # Those of the first turn: only workers that are alike take turns.
    names = given_nodes(specification, cluster, roles=roles) if choice is None else cluster.workers
    nodes = {name: cluster.nodes[name] for name in names if name in cluster.nodes}
    reasons = []
    # With GPUs the number of threads decides nothing, but every rank needs a core that feeds its GPU.
    wanted = cores_used(specification)
    short = {name: node.cores for name, node in nodes.items() if node.cores < wanted}
    if short:
        reasons.append(f"it takes {counted(wanted, 'core')} of each worker, and {_have(short, 'core')}")
    why = None
    if conditions.device == "cpu" and any(gpu.pseudo for node in nodes.values() for gpu in node.gpus):
        why = why_not_fewer_pseudo_gpus(stack, roles)
    if conditions.device == "cuda" or why is not None:
        few = {name: len(node.gpus) for name, node in nodes.items() if len(node.gpus) < work.slots_per_worker}
        if few:
            slots = counted(work.slots_per_worker, "slot")
            reasons.append(
                f"it takes {slots} of each worker, and {_have(few, 'GPU')}"
                + (f" (worker_pseudo_gpus): {why}" if why is not None else "")
            )
            short |= few
    if choice is not None and not short.keys() <= set(cluster.workers[: work.workers]):
        reasons[-1] += f"; {stack} may put it on any worker: {choice}"
    return reasons


def why_no_slow_worker(specification: RunSpec, cluster: Cluster) -> list[str]:
    """Why a run can't have the slow worker that its conditions ask for; empty if it can, or asks for none."""
    work, conditions = specification.work, specification.conditions
    if conditions.slow_worker is None:
        return []
    reasons = []
    if conditions.device != "cpu":
        reasons.append("slow_worker limits processors, and this run is on GPUs")
    if work.workers < len(cluster.workers):
        reasons.append(
            f"slow_worker slows {cluster.workers[-1]}, so the run must take all "
            f"{counted(len(cluster.workers), 'worker')}, and it takes {work.workers}"
        )
    return reasons


def cores_used(specification: RunSpec) -> int:
    """Cores that a run needs on each of its workers: one for each slot where threads are the stack's own."""
    threads, device = specification.conditions.threads, specification.conditions.device
    each = threads if device == "cpu" and threads != "stack" else 1
    return each * specification.work.slots_per_worker


def _have(numbers: Mapping[str, int], what: str) -> str:
    """`worker1 has 1 core`, `worker1 and worker2 have 1 core and worker3 has 2 cores`."""
    by_number: dict[int, list[str]] = {}
    for name, number in numbers.items():
        by_number.setdefault(number, []).append(name)
    return listed(
        [
            f"{listed(names)} {'has' if len(names) == 1 else 'have'} "
            f"{counted(number, what) if number else f'no {what}'}"
            for number, names in by_number.items()
        ]
    )


def differences(nodes: Mapping[str, Node]) -> list[str]:
    """How these nodes differ in what decides times, a phrase each, such as `cores (worker1 2, worker2 1)`."""
    seen = {
        "cores": {name: str(node.cores) for name, node in nodes.items()},
        "memory": {name: f"{node.memory_mb / 1024:.1f} GiB" for name, node in nodes.items()},
        "processor": {name: node.cpu for name, node in nodes.items()},
        "GPUs": {name: ", ".join(gpu.name for gpu in node.gpus) or "none" for name, node in nodes.items()},
    }
    memory = [node.memory_mb for node in nodes.values()]
    if memory and min(memory) >= SAME_MEMORY * max(memory):
        del seen["memory"]
    return [
        f"{what} ({', '.join(f'{name} {value}' for name, value in values.items())})"
        for what, values in seen.items()
        if len(set(values.values())) > 1
    ]


def spare_cores(nodes: Mapping[str, Node], used: int) -> dict[str, int]:
    """Cores of each node beyond the `used` ones; nodes without any are left out."""
    return {name: node.cores - used for name, node in nodes.items() if node.cores > used}
