"""The session of a rank started by torchrun, or by anything else that sets the same environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from training.checkpoint import CheckpointFolder
from training.distributed.collective import agree_on
from training.metrics.figures import Figures
from training.session import Position, check_world, take_device
from training.spec import RunSpec
from training.util.stop import StopSignal


class TorchrunSession:
    """A rank of torchrun, or of anything else that sets the same environment; keeps its results in files.

    Without that environment it is the only rank.
    """

    def __init__(self, spec: RunSpec, out: Path, stop: StopSignal) -> None:
        """Read the environment.

        Args:
            spec: the run.
            out: folder on storage that all ranks share.
            stop: knows whether this process was told to stop.

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
        """The newest good checkpoint in `checkpoints/`; rank 0 chooses, and reports faults of newer ones."""
        chosen: str | None = None
        if self.rank == 0:
            self._checkpoints.clean()
            chosen, faults = self._checkpoints.newest()
            for fault in faults:
                self.report("checkpoint_passed_over", message=fault)
        chosen = agree_on(self, chosen)
        return self._checkpoints.read(chosen) if chosen is not None else None

    def should_stop(self) -> bool:
        """Whether SIGTERM or SIGINT arrived."""
        return self._stop.requested()

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._figures:
            self._figures.close()
