"""The launch census: all of a rank's process, its machine and its software that a launch can change.

Taken in every rank before the ranks meet, so that none waits for another's. Two stacks that train the same
work differ in time by what differs here, by what they do while they train, or by what the machine does beside
them. Of the network, what interfaces leave to their hardware (offloads) is not noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from training.metrics.census import machine, network, process, security, software, storage

Census = dict[str, dict[str, str]]
"""By group, by name: the value as text. What the machine does not tell has no entry."""


def take_census(places: Mapping[str, Path]) -> Census:
    """The census of this process; takes some hundredths of a second.

    Args:
        places: folders by their purpose (`data`, `code`, `results`), for what they are mounted from.
    """
    groups: dict[str, Callable[[], dict[str, str]]] = {
        "environment": process.environment,
        "limits": process.limits,
        "process": process.state,
        "threads": process.threads,
        "cgroup": machine.cgroup,
        "mounts": lambda: machine.mounts(places),
        "input and output": lambda: storage.input_and_output(places),
        "network": network.network,
        "security": security.security,
        "kernel": machine.kernel,
        "processor": machine.processor,
        "arithmetic": software.arithmetic,
        "memory": software.memory,
        "shared libraries": software.shared_libraries,
        "packages": software.packages,
    }
    return {name: _noted(take) for name, take in groups.items()}


def _noted(take: Callable[[], dict[str, str]]) -> dict[str, str]:
    """A group; if it can't be read, why: no run fails because of that."""
    try:
        return take()
    except (OSError, ValueError) as error:
        return {"trouble": f"{type(error).__name__}: {error}"}
