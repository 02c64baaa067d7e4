"""The launch census: all of a rank's process, its machine and its software that a launch can change.

Taken in every rank just before it trains. Two stacks that train the same work can only differ in time by what
differs here, by what they do while they train, or by what the machine does beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training.metrics.census import machine, process, software

Census = dict[str, dict[str, str]]
"""By group, by name: the value as text. What the machine does not tell has no entry."""


def take_census(places: Mapping[str, Path]) -> Census:
    """The census of this process; takes some hundredths of a second.

    Args:
        places: folders by their purpose (`data`, `code`, `results`), for what they are mounted from.
    """
    return {
        "environment": process.environment(),
        "limits": process.limits(),
        "process": process.state(),
        "threads": process.threads(),
        "cgroup": machine.cgroup(),
        "mounts": machine.mounts(places),
        "kernel": machine.kernel(),
        "processor": machine.processor(),
        "arithmetic": software.arithmetic(),
        "memory": software.memory(),
        "shared libraries": software.shared_libraries(),
        "packages": software.packages(),
    }
