"""What the training loop asks of whoever launched it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import torch

from training.checkpoint import CheckpointFolder, Position
from training.metrics.figures import Figures
from training.spec import RunSpec
from training.util.stop import StopSignal


class LaunchError(RuntimeError):
    """The process was not launched as the specification asks; its text is one sentence for whoever did."""


class Session(Protocol):
    """One rank's view of its launcher. The loop is the same for every stack; this is what differs."""

    rank: int  # from 0
    world_size: int
    local_rank: int  # on this node, from 0
    device: torch.device
    goes_on_later: bool  # whether whoever launched it starts it anew when it stopped because it was told to

    def report(self, event: str, **figures: Any) -> None:
        """Tell the people watching: an event's name and its figures. Every rank may call it; one is heard."""

    def record(self, steps: list[dict[str, Any]], ranks: list[dict[str, Any]]) -> None:
        """Keep the figures of some steps, in their order. Every rank may call it; one is heard.

        Args:
            steps: figures of each.
            ranks: what each rank last said of itself, for the people watching.
        """

    def progress(self, done: float) -> None:
        """Tell how far training is, from 0 to 1. Every rank may call it; one is heard."""

    def save_checkpoint(self, state: dict[str, Any] | None, position: Position) -> None:
        """Keep `state` (tensors, numbers, text, lists and dicts of them). Rank 0 has it; every rank calls."""

    def latest_checkpoint(self) -> dict[str, Any] | None:
        """The newest good state that was kept of the same work, tensors on the CPU; None if there is none.

        Every rank calls it, and all get the same.
        """

    def should_stop(self) -> bool:
        """Whether this rank was told to stop."""

    def close(self) -> None:
        """Nothing more will be reported."""


class TorchrunSession:
    """A rank of torchrun, or of whatever else sets the same environment; figures and checkpoints are files.

    Without that environment it is the only rank.
    """

    def __init__(self, spec: RunSpec, out: Path, stop: StopSignal) -> None:
        """Read the environment.

        Args:
            spec: the run.
            out: folder on storage that all ranks share.
            stop: what knows whether this process was told to stop.

        Raises:
            LaunchError: there are not as many ranks as the work has, or a device is missing.
        """
        self.rank = int(os.environ.get("RANK", "0"))
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        check_world(spec, self.world_size)
        self.device = take_device(spec.conditions.device, self.local_rank)
        self.goes_on_later = False
        self._stop = stop
        self._figures = Figures(out) if self.rank == 0 else None
        self._checkpoints = CheckpointFolder(
            out / "checkpoints", spec.work.digest, spec.work.keep_checkpoints
        )

    def report(self, event: str, **figures: Any) -> None:
        """Append one line to `progress.jsonl` (rank 0), and show it."""
        if self._figures:
            self._figures.event(event, figures)

    def record(self, steps: list[dict[str, Any]], ranks: list[dict[str, Any]]) -> None:
        """Append a line for each step to `steps.jsonl`, and its scalars to TensorBoard's file (rank 0)."""
        if self._figures:
            self._figures.steps(steps, ranks)

    def progress(self, done: float) -> None:
        """Append one line to `progress.jsonl` (rank 0)."""
        self.report("progress", done=done)

    def save_checkpoint(self, state: dict[str, Any] | None, position: Position) -> None:
        """Write a folder in `checkpoints/` (rank 0); the newest `keep_checkpoints` stay."""
        if state is not None:
            self._checkpoints.write(state, position)

    def latest_checkpoint(self) -> dict[str, Any] | None:
        """The newest good checkpoint in `checkpoints/`; rank 0 chooses, and says what is wrong with newer."""
        from training.distributed.collective import agree_on

        chosen: str | None = None
        if self.rank == 0:
            self._checkpoints.clean()
            chosen, faults = self._checkpoints.newest()
            for fault in faults:
                self.report("checkpoint_passed_over", message=fault)
        chosen = agree_on(self, chosen)
        return self._checkpoints.read(chosen) if chosen is not None else None

    def should_stop(self) -> bool:
        """Whether SIGTERM or SIGINT came."""
        return self._stop.requested()

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._figures:
            self._figures.close()


def check_world(spec: RunSpec, world_size: int) -> None:
    """Check that there are as many ranks as the work has.

    Raises:
        LaunchError: there are not.
    """
    if world_size != spec.work.world_size:
        raise LaunchError(
            f"The work has {spec.work.world_size} ranks ({spec.work.workers} workers of "
            f"{spec.work.slots_per_worker}), but WORLD_SIZE is {world_size}; launch exactly those."
        )


def take_device(kind: str, local_rank: int) -> torch.device:
    """The device of a rank, chosen for everything that follows.

    Raises:
        LaunchError: there is none for it.
    """
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available() or local_rank >= torch.cuda.device_count():
        raise LaunchError(
            f"Local rank {local_rank} is to run on a GPU of its own, but torch sees "
            f"{torch.cuda.device_count()} here; take device cpu, or see to the driver and to torch's build."
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
