"""What the training loop asks of whoever launched it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

import torch

from training.files import append_event, publish
from training.spec import RunSpec
from training.stop import StopSignal


class LaunchError(RuntimeError):
    """The process was not launched as the specification asks; its text is one sentence for whoever did."""


class Session(Protocol):
    """One rank's view of its launcher. The loop is the same for every stack; this is what differs."""

    rank: int  # from 0
    world_size: int
    local_rank: int  # on this node, from 0
    device: torch.device

    def report(self, event: str, **figures: Any) -> None:
        """Tell the people watching: an event's name and its figures. Every rank may call it; one is heard."""

    def save_checkpoint(self, epoch: int, state: dict[str, Any]) -> None:
        """Keep `state` (tensors, numbers, text, lists and dicts of them) after `epoch`. Called on rank 0."""

    def latest_checkpoint(self) -> dict[str, Any] | None:
        """The newest state that was kept for the same work, tensors on the CPU; None if there is none."""

    def should_stop(self) -> bool:
        """Whether this rank was told to stop."""


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
        if self.world_size != spec.work.world_size:
            raise LaunchError(
                f"The work has {spec.work.world_size} ranks ({spec.work.workers} workers of "
                f"{spec.work.slots_per_worker}), but WORLD_SIZE is {self.world_size}; launch exactly those."
            )
        self.device = _device(spec.conditions.device, self.local_rank)
        self._stop = stop
        self._work_digest = spec.work.digest
        self._progress = out / "progress.jsonl"
        self._checkpoints = out / "checkpoints"

    def report(self, event: str, **figures: Any) -> None:
        """Append one line to `progress.jsonl` (rank 0)."""
        if self.rank == 0:
            append_event(self._progress, event, figures)

    def save_checkpoint(self, epoch: int, state: dict[str, Any]) -> None:
        """Write `checkpoints/<work digest>-<epoch>.pt` beside its name, rename it, then remove older ones."""
        self._checkpoints.mkdir(exist_ok=True)
        older = self._kept()
        path = self._checkpoints / f"{self._work_digest}-{epoch:06}.pt"
        beside = path.with_suffix(".tmp")
        with beside.open("wb") as file:
            torch.save({"work_digest": self._work_digest} | state, file)
            file.flush()
            publish(beside, file.fileno())
        beside.replace(path)
        for old in older:
            if old != path:
                old.unlink()

    def latest_checkpoint(self) -> dict[str, Any] | None:
        """The newest checkpoint of the same work; read as plain data, so that a file can't bring code."""
        kept = self._kept()
        if not kept:
            return None
        state: dict[str, Any] = torch.load(kept[-1], map_location="cpu", weights_only=True)
        if state["work_digest"] != self._work_digest:
            raise LaunchError(f"The checkpoint {kept[-1]} is of another work than its name says; remove it.")
        return state

    def should_stop(self) -> bool:
        """Whether SIGTERM or SIGINT came."""
        return self._stop.requested()

    def _kept(self) -> list[Path]:
        return sorted(self._checkpoints.glob(f"{self._work_digest}-*.pt"))


def _device(kind: str, local_rank: int) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available() or local_rank >= torch.cuda.device_count():
        raise LaunchError(
            f"Local rank {local_rank} is to run on a GPU of its own, but torch sees "
            f"{torch.cuda.device_count()} here; take device cpu, or see to the driver and to torch's build."
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
