"""What can go wrong in a run, and what it means to a person."""

from __future__ import annotations

import errno
from typing import Final

#: What is said on the CPU where memory runs out: by torch's allocator, by oneDNN (which says no more than
#: this where it can't have what an operation needs), and by C++.
NO_MEMORY: Final = (
    "can't allocate memory",
    "could not create a primitive",
    "could not create a memory",
    "bad_alloc",
)


class DataError(ValueError):
    """Data that can't be used; its text is one sentence for whoever prepared it."""


class LaunchError(RuntimeError):
    """The process was not launched as the specification asks; its text is one sentence for whoever did."""


class ThreadsError(RuntimeError):
    """The environment asks for another number of threads than the run."""


class CheckpointError(RuntimeError):
    """A checkpoint that must not be used; its text is one sentence that names it."""


class OtherWorkError(CheckpointError):
    """It is a good checkpoint, but of another work."""


class DivergedError(RuntimeError):
    """The loss is no number any more; its text says where that began."""


class ShortOfMemoryError(Exception):
    """A step did not fit into memory; its text says which batch does."""


class PeerError(RuntimeError):
    """Another rank is gone; its text says which, and how far it was."""


class Stopped(Exception):
    """The process was told to stop before its work was done."""


class Yielded(Stopped):
    """The work was left to whoever launched it, to be resumed later; what was reported has arrived."""


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its class where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def explain_failure(error: BaseException) -> str:
    """One sentence: what went wrong, and what to do where that is known."""
    reason = first_line(error)
    if out_of_memory(error):  # before or after the steps: what they need is tried out (`training.memory`)
        return (
            f"The memory does not suffice ({reason.rstrip('.')}): take a smaller batch_per_worker, more "
            "gradient_accumulation, activation_checkpointing, or a shorter max_length."
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" while writing {error.filename}" if error.filename else ""
        return f"The disk is full{where}; make room, then run it again."
    return reason


def failed_between_ranks(error: BaseException) -> bool:
    """Whether it was something between the ranks that failed, so that the cause may be another rank's."""
    import torch.distributed as dist  # here, as commands that need no torch have errors as well

    words = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "timed out")
    return isinstance(error, dist.DistError) or (
        type(error) is RuntimeError and any(word in str(error).lower() for word in words)
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, a GPU's or this machine's."""
    if isinstance(error, MemoryError):
        return True
    # torch.OutOfMemoryError on a GPU; on the CPU a RuntimeError, of the allocator's or of who asked it.
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in NO_MEMORY)
    )
