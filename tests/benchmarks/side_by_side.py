"""Processes that compute beside one another, each on a core of its own.

They are forked, so that nothing is imported again, and nothing that one sets or keeps is there in the next.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Final, TypeVar, cast

import torch

T = TypeVar("T")

FORK: Final = multiprocessing.get_context("fork")
ENDING: Final = {signal.SIGINT, signal.SIGTERM}


def side_by_side(calls: Sequence[Callable[[], T]], cores: Sequence[int]) -> list[T]:
    """What each of `calls` returns, in a process of its own with one thread, pinned to a core.

    Args:
        calls: as many as cores; what they return can be pickled.
        cores: the kernel's numbers of them.

    Raises:
        RuntimeError: one failed (its traceback is on standard error); the others have been ended.
    """
    processes, ends = [], []
    found: dict[int, T] = {}
    try:
        for call, core in zip(calls, cores, strict=True):
            ours, theirs = FORK.Pipe(duplex=False)
            process = FORK.Process(target=_do, args=(call, core, theirs))
            # What a signal raises while a process is forked would be lost, so it has to wait.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
            process.start()
            processes.append(process)
            ends.append(ours)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        while pending := [end for number, end in enumerate(ends) if number not in found]:
            for end in cast("list[Connection[Any, Any]]", wait(pending)):
                number = ends.index(end)
                try:
                    found[number] = end.recv()
                except EOFError as error:
                    processes[number].join()
                    raise RuntimeError(
                        f"A process of the benchmark on core {cores[number]} failed with exit code "
                        f"{processes[number].exitcode}; what it said is above."
                    ) from error
    finally:
        for number, process in enumerate(processes):
            if number not in found:
                process.kill()
            process.join()
    return [found[number] for number in range(len(ends))]


def _do(call: Callable[[], Any], core: int, end: Connection[Any, Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    end.send(call())
    end.close()
