"""How batches reach the steps: made by the loop itself, or by torch's DataLoader, with equal bits."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from training.workload import Batch, Workload

Request = tuple[str, list[int], int]
"""A split, the numbers of its samples, and the epoch (from 1)."""


def feed(workload: Workload, requests: Iterable[Request], loader_workers: int | None) -> Generator[Batch]:
    """The batches that are asked for, in their order, on the CPU; closing it ends its processes.

    Args:
        workload: makes them.
        requests: what is asked for.
        loader_workers: processes of a DataLoader that make them ahead of the steps; 0 = a DataLoader without
            any; None = no DataLoader.
    """
    if loader_workers is None:
        for split, chosen, epoch in requests:
            yield workload.batch(split, torch.tensor(chosen), epoch)
        return
    loader: DataLoader[Any] = DataLoader(
        _Batches(workload),
        sampler=requests,
        batch_size=None,
        num_workers=loader_workers,
        collate_fn=_as_it_is,
        worker_init_fn=_end_for_the_rank_alone if loader_workers else None,
        # A process is not started anew: it has the workload's data, memory-mapped.
        multiprocessing_context="fork" if loader_workers else None,
        # Its own, as it draws from it: the global one belongs to the model's dropout.
        generator=torch.Generator(),
    )
    with _held_back(signal.SIGTERM):
        batches = iter(loader)
    try:
        for found in batches:
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        del batches  # which ends its processes, even if an error keeps this frame


class _Batches(Dataset[Any]):
    """One item for each request."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def __getitem__(self, request: Request) -> Batch | Exception:
        split, chosen, epoch = request
        try:
            return self._workload.batch(split, torch.tensor(chosen), epoch)
        # Whatever it is, it must reach the rank as it is: the DataLoader would bury it in a text of its own.
        except Exception as error:
            error.add_note(f"It came from:\n{traceback.format_exc()}")
            return error if _can_be_sent(error) else RuntimeError(f"{type(error).__name__}: {error}")


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
    may signal all its processes. The signal is blocked here since before the fork.
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
