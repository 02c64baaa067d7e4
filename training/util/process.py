"""Facts about this process: when it started, where, and with which libraries."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import time
from importlib import metadata
from pathlib import Path
from typing import Any

ENVIRONMENT_DIGEST_FILE = "TRAINBED_ENV_DIGEST"
"""Environment variable with the path of the file that holds the digest of the installed environment."""

LIBRARIES = ("transformers", "tokenizers", "numpy", "pyarrow", "pydantic")


def process_start() -> float:
    """When the kernel started this process: unix time in s, accurate to 0.01 s (`starttime` in proc(5))."""
    # The command name, in parentheses, may contain spaces: count from its end. `starttime` is field 22.
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    # `btime` in /proc/stat is in whole seconds; the boot clock gives the same moment with a fraction.
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory, because the next step needs as much again.

    By default, glibc returns large blocks to the kernel and requests them again in every step. A step of
    BERT-tiny then touches 8,000 fresh pages instead of 500 (torch 2.13, batch 32 x 128); where page faults
    are expensive, as in nested virtual machines, that is a good part of its time.

    Returns whether the C library supports this (glibc does).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h, in bytes.
    return mallopt is not None and bool(mallopt(-3, 1 << 30)) and bool(mallopt(-1, (1 << 31) - 1))


def peak_memory_mb() -> float:
    """This process's peak resident memory, in MB (2^20 bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # ru_maxrss is in KiB on Linux


def process_facts() -> dict[str, Any]:
    """Host, user, cores, libraries and environment of this process, for its rank's file.

    Raises:
        OSError: the file named by `TRAINBED_ENV_DIGEST` can't be read.
    """
    import torch  # not at the top: this module tells when the process began, before the long imports

    digest_file = os.environ.get(ENVIRONMENT_DIGEST_FILE)
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "uid": os.getuid(),
        "affinity": sorted(os.sched_getaffinity(0)),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
        # torch's own word, because the version of PyPI's package lacks the build (+cu130).
        "versions": {"python": platform.python_version(), "torch": torch.__version__}
        | {name: metadata.version(name) for name in LIBRARIES},
        "environment_digest": Path(digest_file).read_text(encoding="utf-8").strip() if digest_file else None,
    }
