"""What can go wrong in a run, and how to explain it."""

from __future__ import annotations

import errno
from typing import Final

#: Messages when memory runs out on the CPU: from torch's allocator, from oneDNN (which says no more than
#: this if it can't allocate what an operation needs), and from C++.
NO_MEMORY: Final = (
    "can't allocate memory",
    "could not create a primitive",
    "could not create a memory",
    "bad_alloc",
)


class DataError(ValueError):
    """Data that can't be used; its text is one sentence for whoever prepared it."""


class WorkloadError(ValueError):
    """A workload that can't be used; its text is one sentence for whoever wrote or named it."""


class LaunchError(RuntimeError):
    """The process was not launched as specified; its text is one sentence for whoever launched it."""


class ThreadsError(RuntimeError):
    """The environment asks for a different number of threads than the run."""


class ProgramError(RuntimeError):
    """A program with a loop of its own failed; its text says how."""


class CheckpointError(RuntimeError):
    """A checkpoint that must not be used; its text is one sentence that names it."""


class OtherWorkError(CheckpointError):
    """A good checkpoint, but of another work."""


class DivergedError(RuntimeError):
    """The loss is no longer a number; its text says where that began."""


class ShortOfMemoryError(Exception):
    """A step did not fit into memory; its text says which batch does."""


class PeerError(RuntimeError):
    """Another rank is gone; its text says which, and how far it got."""


class Stopped(Exception):
    """The process was told to stop before its work was done."""


class Yielded(Stopped):
    """The launcher will resume the work later; everything reported so far has arrived."""


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def explain_failure(error: BaseException) -> str:
    """One sentence: what went wrong and, if known, what to do."""
    reason = first_line(error)
    if out_of_memory(error):  # before or after the steps: `training.memory` explains theirs
        return (
            f"Not enough memory ({reason.rstrip('.')}): use a smaller batch_per_worker or evaluation_batch, "
            "more gradient_accumulation, activation_checkpointing, or smaller samples."
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" while writing {error.filename}" if error.filename else ""
        return f"The disk is full{where}; free some space, then run it again."
    return reason


def failed_between_ranks(error: BaseException) -> bool:
    """Whether communication between the ranks failed, so that the cause may lie with another rank."""
    import torch.distributed as dist  # here, as commands that don't need torch import this module too

    words = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "timed out")
    return isinstance(error, dist.DistError) or (
        type(error) is RuntimeError and any(word in str(error).lower() for word in words)
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, a GPU's or this machine's."""
    if isinstance(error, MemoryError):
        return True
    # torch.OutOfMemoryError on a GPU; on the CPU a RuntimeError, from the allocator or from its caller.
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in NO_MEMORY)
    )
