"""How batches reach the steps: made by the loop itself, or by torch's DataLoader, with equal bits."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.resource_tracker import ensure_running
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from training.errors import WorkloadError, first_line
from training.registry import Outside, registered
from training.spec import Conditions
from training.util.process import keep_freed_memory
from training.workload import Batch, Workload

Request = tuple[str, list[int], int]
"""A split, the numbers of its samples, and the epoch (from 1)."""


def feed(workload: Workload, requests: Iterable[Request], conditions: Conditions) -> Generator[Batch]:
    """The batches that are asked for, in their order, on the CPU; closing it ends its processes.

    Args:
        workload: makes them.
        requests: what is asked for.
        conditions: whether a DataLoader makes them, in how many processes ahead of the steps
            (`loader_workers`), and how these start (`loader_start`).

    Raises:
        WorkloadError: its processes start anew, and the workload can't be sent to them.
    """
    processes, spawned = conditions.loader_workers, conditions.loader_start == "spawn"
    if processes is None:
        for split, chosen, epoch in requests:
            yield workload.batch(split, torch.tensor(chosen), epoch)
        return
    loader: DataLoader[Any] = DataLoader(
        _Batches(workload, conditions),
        sampler=requests,
        batch_size=None,
        num_workers=processes,
        collate_fn=_as_it_is,
        worker_init_fn=_end_for_the_rank_alone if processes else None,
        # A forked process has the workload's data, memory-mapped, without being sent anything.
        multiprocessing_context=conditions.loader_start if processes else None,
        # Its own, as it draws from it: the global one belongs to the model's dropout.
        generator=torch.Generator(),
    )
    if spawned:
        # At its first call it lets SIGTERM through, so it must not be made while that is held back.
        ensure_running()
    with _held_back(signal.SIGTERM):
        batches = _sent(loader, workload) if spawned else iter(loader)
    try:
        for found in batches:
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        del batches  # which ends its processes, even if an error keeps this frame


def _sent(loader: DataLoader[Any], workload: Workload) -> Iterator[Any]:
    """The loader's batches; its processes are started anew, and sent the workload.

    Raises:
        WorkloadError: it can't be sent.
    """
    try:
        return iter(loader)
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # whichever of them pickle raises
        raise WorkloadError(
            f"{type(workload).__name__} can't be sent to the processes of a DataLoader "
            f"({type(error).__name__}: {first_line(error).rstrip('.')}); hold nothing in it that can't be "
            "pickled, or leave loader_start: spawn out."
        ) from error


class _Batches(Dataset[Any]):
    """One item for each request."""

    def __init__(self, workload: Workload, conditions: Conditions) -> None:
        self._workload, self._conditions = workload, conditions

    def __reduce__(self) -> tuple[Any, ...]:
        """Only for a process that starts anew; the users' workloads come first, as the others are of them."""
        deterministic = torch.are_deterministic_algorithms_enabled()
        return _in_new_process, (registered(), deterministic, self._workload, self._conditions)

    def __getitem__(self, request: Request) -> Batch | Exception:
        split, chosen, epoch = request
        try:
            return self._workload.batch(split, torch.tensor(chosen), epoch)
        # Whatever it is, it must reach the rank as it is: the DataLoader would bury it in a text of its own.
        except Exception as error:
            error.add_note(f"It came from:\n{traceback.format_exc()}")
            return error if _can_be_sent(error) else RuntimeError(f"{type(error).__name__}: {error}")


def _in_new_process(
    _: tuple[Outside, ...], deterministic: bool, workload: Workload, conditions: Conditions
) -> _Batches:
    """What its rank has, where a forked process has it, too; unpickling has made users' workloads known."""
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if conditions.allocator == "tuned":
        keep_freed_memory()
    return _Batches(workload, conditions)


def _can_be_sent(error: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # whatever a class of somebody else's raises
        return False


def _as_it_is(item: Any) -> Any:
    return item


def _end_for_the_rank_alone(_: int) -> None:
    """In a process of the loader: SIGTERM ends it only if the rank itself sends it.

    A rank that is told to stop finishes its step first, and needs its batch for that; but whoever stops it
    may signal all its processes. The signal is blocked here since before this process started.
    """
    rank = os.getppid()

    def wait() -> None:
        while True:
            sent = signal.sigwaitinfo({signal.SIGTERM})
            if sent.si_pid == rank:
                os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    """Meanwhile a signal has to wait. A process that is started inherits that; here it comes afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
