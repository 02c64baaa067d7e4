"""What ranks compute together and agree on, gradients included.

With a single rank there is no process group, and nothing to do.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]  # exists, but mypy can't see it
from torch.nn.parallel import DistributedDataParallel

from training.distributed.gradients import register, settings_of
from training.distributed.network import choose_interface
from training.session import Session

T = TypeVar("T")

TIMEOUT: Final = timedelta(minutes=3)
"""How long a rank waits for the others, at the rendezvous and in every collective, before it fails."""

LOOK_EVERY: Final = 0.05  # s


def join(session: Session) -> Store | None:
    """Meet the other ranks at `MASTER_ADDR`:`MASTER_PORT`; returns when all are there.

    Returns the rendezvous store, for messages between the ranks beside the training; None if there is only
    one rank.
    """
    meeting = meet(session)
    if meeting is None:
        return None
    backend = {"cpu": "gloo", "cuda": "nccl"}[session.device.type]
    dist.init_process_group(
        backend, store=meeting.store, rank=session.rank, world_size=session.world_size, timeout=TIMEOUT
    )
    wait_for_all(session)
    return meeting.store


class Meeting:
    """What ranks without a process group share: their rendezvous store."""

    def __init__(self, store: Store, session: Session) -> None:
        """All ranks have one, with the same store."""
        self.store, self._session = store, session

    def gather(self, key: str, value: str) -> list[str]:
        """Every rank's `value`, by rank, on all ranks; each `key` is used once. It waits as long as it takes.

        (If a rank is gone, `training.distributed.liveness` ends the wait, and the process.)
        """
        self.store.set(f"{key}/{self._session.rank}", value)
        return [self.store.get(each).decode() for each in self._all_of(key)]

    def leave(self) -> None:
        """Leave the others: the last call. Rank 0 may hold the store, so it waits for all."""
        self.store.set(f"left/{self._session.rank}", "")
        if self._session.rank == 0:
            self._all_of("left")

    def _all_of(self, key: str) -> list[str]:
        keys = [f"{key}/{rank}" for rank in range(self._session.world_size)]
        while not self.store.check(keys):
            time.sleep(LOOK_EVERY)
        return keys


def meet(session: Session) -> Meeting | None:
    """Find the others at `MASTER_ADDR`:`MASTER_PORT`; None if there is only one rank."""
    if session.world_size == 1:
        return None
    if session.device.type == "cuda":
        choose_interface()
    rendezvous = dist.rendezvous(  # type: ignore[attr-defined]
        "env://", session.rank, session.world_size, timeout=TIMEOUT
    )
    store, _, _ = next(rendezvous)
    return Meeting(store, session)


def leave(session: Session) -> None:
    """Leave the other ranks; the caller must no longer hold a replica.

    A replica that is freed last also frees the process group, while holding the GIL: if one of gloo's threads
    needs the GIL just then, both wait forever (seen with torch 2.13). Freed on its own, the group releases
    the GIL.
    """
    if session.world_size > 1:
        gc.collect()  # DistributedDataParallel's wrapper is part of reference cycles
        dist.destroy_process_group()


def wait_for_all(session: Session) -> None:
    """Return when every rank has called this."""
    if session.world_size > 1:
        dist.barrier()


def sum_over_ranks(session: Session, values: torch.Tensor) -> torch.Tensor:
    """The sum of every rank's `values`, in place, the same on all ranks."""
    if session.world_size > 1:
        dist.all_reduce(values)
    return values


def gather(session: Session, value: T) -> list[T]:
    """Every rank's `value` (picklable, small), by rank, on all ranks."""
    if session.world_size == 1:
        return [value]
    values: list[Any] = [None] * session.world_size
    dist.all_gather_object(values, value)
    return values


def gather_at_first(session: Session, value: T) -> list[T] | None:
    """Every rank's `value` (picklable), by rank, on rank 0; None on the others."""
    if session.world_size == 1:
        return [value]
    values: list[Any] | None = [None] * session.world_size if session.rank == 0 else None
    dist.gather_object(value, values, dst=0)
    return values


def agree_on(session: Session, value: T) -> T:
    """Rank 0's `value` (picklable, small), on all ranks."""
    values: list[Any] = [value]
    if session.world_size > 1:
        dist.broadcast_object_list(values, src=0)
    agreed: T = values[0]
    return agreed


class StopVote:
    """Tells all ranks, before the same step, whether any of them was told to stop.

    Each vote is counted during one step and read before the next, so no rank waits for it.
    """

    def __init__(self, session: Session) -> None:
        """Every rank creates one."""
        self._session = session
        # A group of its own: on a GPU the answer must not wait for the gradients, nor they for it.
        self._group = dist.new_group(backend="gloo", timeout=TIMEOUT) if session.world_size > 1 else None
        self._pending: tuple[torch.Tensor, Any] | None = None

    def stop(self) -> bool:
        """Whether to stop now; every rank calls it before every step, and all get the same answer."""
        wants_stop = self._session.should_stop()
        if self._group is None:
            return wants_stop
        answer = self.settle()
        ballot = torch.tensor([int(wants_stop)])
        self._pending = ballot, dist.all_reduce(ballot, dist.ReduceOp.MAX, self._group, async_op=True)
        return answer

    def settle(self) -> bool:
        """Wait until the last vote is counted; returns whether it was to stop."""
        if self._pending is None:
            return False
        (ballot, work), self._pending = self._pending, None
        work.wait()
        return bool(ballot.item())


def replicate(
    model: torch.nn.Module,
    session: Session,
    on_last_bucket: Callable[[], None],
    gradient_sync: str = "dense",
    whole_steps: int = 2,
) -> torch.nn.Module:
    """`model` as a rank calls it in training: after `backward` its gradients are the means over all ranks.

    Args:
        model: with equal weights on all ranks.
        session: this rank's.
        on_last_bucket: called in each backward pass once its last gradients are ready: from then on there is
            no computation left to hide communication behind.
        gradient_sync: how ranks exchange gradients (`training.distributed.gradients.choose_sync`).
        whole_steps: how many steps `powersgd` begins without compressing anything, at least 2.
    """
    if session.world_size == 1:
        return model
    replica = DistributedDataParallel(
        model,
        device_ids=[session.device] if session.device.type == "cuda" else None,
        # Running means, say: rank 0's, as PyTorch does by default. Constants need not be sent in every step.
        forward_sync_buffers=bool(_kept_buffers(model)),
        **settings_of(model, gradient_sync),
    )
    register(replica, gradient_sync, on_last_bucket, whole_steps)
    return replica


def share_buffers(session: Session, model: torch.nn.Module) -> None:
    """Give all ranks rank 0's buffers, as in each forward pass: they are evaluated and saved."""
    if session.world_size > 1:
        for buffer in _kept_buffers(model):
            dist.broadcast(buffer, src=0)


def _kept_buffers(model: torch.nn.Module) -> list[torch.Tensor]:
    """The buffers that are part of a model's state, so not its constants."""
    state = model.state_dict()
    return [buffer for name, buffer in model.named_buffers() if name in state]
