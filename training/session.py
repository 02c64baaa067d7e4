"""What the training loop asks of its launcher."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from training.errors import LaunchError
from training.spec import RunSpec


@dataclass(frozen=True, order=True)
class Position:
    """How far training had come when a checkpoint was written."""

    steps: int  # taken by the optimiser
    epochs: int  # trained and, where due, evaluated

    @property
    def name(self) -> str:
        """Name of the checkpoint's folder; names sort as positions do."""
        return f"{self.steps:09d}-{self.epochs:06d}"


@dataclass
class RankStatus:
    """This rank's progress: the loop keeps it up to date, and the other ranks are told of it."""

    epoch: int = 0  # 0 = training has not begun
    step: int = 0
    phase: Callable[[], str] = lambda: ""
    figures: dict[str, float] = field(default_factory=dict)  # of its newest recorded step
    of_all: Callable[[], list[dict[str, Any]]] | None = None  # each rank's last report; None = no others

    def ranks(self) -> list[dict[str, Any]]:
        """Every rank's last report, for rank 0 to pass on; asks no rank and waits for none."""
        return self.of_all() if self.of_all else [{"rank": 0, "host": socket.gethostname()} | self.figures]

    def __str__(self) -> str:
        step = f"step {self.step} of " if self.step else ""
        text = f"{step}epoch {self.epoch}" if self.epoch else "its start"
        phase = self.phase()
        return f"{text} ({phase.replace('_', ' ')})" if phase else text


class Session(Protocol):
    """One rank's view of its launcher. The loop is the same for every stack; this is what differs."""

    rank: int  # from 0
    world_size: int
    local_rank: int  # on this node, from 0
    device: torch.device
    goes_on_later: bool  # whether the launcher restarts a rank that it told to stop

    def report(self, event: str, **figures: Any) -> None:
        """Tell the people watching of an event and its figures. Every rank may call it; one is heard."""

    def record(self, steps: list[dict[str, Any]], ranks: list[dict[str, Any]]) -> None:
        """Keep the figures of some steps, in order. Every rank may call it; one is heard.

        Args:
            steps: figures of each.
            ranks: each rank's last report, for the people watching.
        """

    def progress(self, done: float) -> None:
        """Report how far training is, from 0 to 1. Every rank may call it; one is heard."""

    def save_checkpoint(self, state: dict[str, Any] | None, position: Position) -> None:
        """Save `state` (tensors, numbers, text, lists and dicts of them). Rank 0 has it; every rank calls."""

    def latest_checkpoint(self) -> dict[str, Any] | None:
        """The newest good state saved for the same work, tensors on the CPU; None if there is none.

        Every rank calls it, and all get the same.
        """

    def should_stop(self) -> bool:
        """Whether this rank was told to stop."""

    def close(self) -> None:
        """Nothing more will be reported."""


def check_world(spec: RunSpec, world_size: int) -> None:
    """Check that there are as many ranks as the work has.

    Raises:
        LaunchError: there are not.
    """
    if world_size != spec.work.world_size:
        raise LaunchError(
            f"The work has {spec.work.world_size} ranks ({spec.work.workers} workers of "
            f"{spec.work.slots_per_worker}), but WORLD_SIZE is {world_size}; launch exactly that many."
        )


def take_device(kind: str, local_rank: int) -> torch.device:
    """The device of a rank, made the default for everything that follows.

    Raises:
        LaunchError: there is no device for it.
    """
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available() or local_rank >= torch.cuda.device_count():
        raise LaunchError(
            f"Local rank {local_rank} needs a GPU of its own, but torch sees "
            f"{torch.cuda.device_count()} here; use device cpu, or check the driver and torch's build."
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
