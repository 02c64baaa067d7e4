"""Which machine and which software a benchmark ran on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Final

import psutil
import torch

from experiments.report.formats import TENTHS, number
from experiments.util.git import revision_and_changes
from experiments.util.paths import REPOSITORY
from training.metrics.census.machine import processor
from training.metrics.census.software import arithmetic

LIBRARIES: Final = ("transformers", "accelerate", "numpy")
OF_ARITHMETIC: Final = ("instructions of torch", "branch of MKL", "branch that suits MKL")
MEASURED: Final = ("training", "tests/benchmarks")


def described() -> dict[str, str]:
    """What does not change from one measurement to the next: this machine and its libraries, in words."""
    return {
        "processor": processor().get("model", platform.machine()),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total >> 20} MiB",
        "system": f"Linux {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": metadata.version("transformers"),
    }


def facts() -> dict[str, str]:
    """Facts by name, in words; taken before the first training, so that the load is that of others."""
    chip, computes = processor(), arithmetic()
    revision, changes = revision_and_changes(REPOSITORY, MEASURED)
    changed = "+, with uncommitted changes" if changes else ""
    return {
        "processor": chip.get("model", platform.machine()),
        "hypervisor": chip.get("hypervisor", "unknown"),
        "cores": number(os.cpu_count()),
        "cores of this process": number(len(os.sched_getaffinity(0))),
        "load at the start": number(os.getloadavg()[0], TENTHS),
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "torch": torch.__version__,
        **{name: metadata.version(name) for name in LIBRARIES},
        **{name: computes[name] for name in OF_ARITHMETIC if name in computes},
        "commit": "unknown" if revision is None else f"{revision}{changed}",
    }
