"""How batches reach the steps: made by the loop itself, or by torch's DataLoader, with equal bits."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Generator, Iterable
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
        worker_init_fn=_ignore_stop if loader_workers else None,
        # A process is not started anew: it has the workload's data, memory-mapped.
        multiprocessing_context="fork" if loader_workers else None,
        # Its own, as it draws from it: the global one belongs to the model's dropout.
        generator=torch.Generator(),
    )
    for found in loader:
        if isinstance(found, Exception):
            raise found
        yield found


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


def _ignore_stop(_: int) -> None:
    # A rank that is told to stop finishes its step first, and needs its batch for that.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
