"""The launch census: all of a rank's process, its machine and its software that a launch can change.

Taken in every rank before the ranks meet, so that none waits for another's; what meeting changes is looked at
once more, and a program with a loop of its own is looked at from outside. Two stacks that train the same
work differ in time by what differs here, by what they do while they train, or by what the machine does beside
them. Of the network, what interfaces leave to their hardware (offloads) is not noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from training.metrics.census import machine, network, process, security, software, storage

Census = dict[str, dict[str, str]]
"""By group, by name: the value as text. What the machine does not tell has no entry."""


def take_census(places: Mapping[str, Path], pid: int | None = None) -> Census:
    """The census of a process; takes some hundredths of a second.

    From outside it can't be seen what another process computes with: its `arithmetic`, `kernels` and
    `packages` are this one's, and its group `process` says so.

    Args:
        places: folders by their purpose (`data`, `code`, `results`), for what they are mounted from.
        pid: of another process of the same user on this machine; None: this one.
    """
    of = "self" if pid is None else str(pid)
    groups: dict[str, Callable[[], dict[str, str]]] = {
        "environment": lambda: process.environment(of),
        "limits": lambda: process.limits(of),
        "process": lambda: process.state(of),
        "threads": lambda: process.threads(of),
        "cgroup": lambda: machine.cgroup(of),
        "mounts": lambda: machine.mounts(places, of),
        "input and output": lambda: storage.input_and_output(places, of),
        "network": network.network,
        "security": lambda: security.security(of),
        "kernel": machine.kernel,
        "processor": machine.processor,
        "frequency": lambda: machine.frequency(of),
        "arithmetic": software.arithmetic,
        "kernels": software.kernels,
        "memory": lambda: software.memory(of),
        "shared libraries": lambda: software.shared_libraries(of),
        "packages": software.packages,
    }
    found = {name: _noted(take) for name, take in groups.items()}
    if pid is not None:
        found["process"]["arithmetic, kernels and packages"] = "of the process that started it"
    return found


def take_second_look() -> Census:
    """What has changed by the time when the ranks have met: the threads of this process, by name."""
    return {"threads after meeting": _noted(process.threads)}


def _noted(take: Callable[[], dict[str, str]]) -> dict[str, str]:
    """A group; if it can't be read, why: no run fails because of that."""
    try:
        return take()
    except (OSError, ValueError, RuntimeError) as error:  # the last are torch's
        return {"trouble": f"{type(error).__name__}: {error}"}
