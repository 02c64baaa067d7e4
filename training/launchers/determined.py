"""Determined AI: the task's torch launcher starts this module once for each rank.

python3 -m determined.launch.torch_distributed -- python3 -m training.launchers.determined --spec ...

Off a cluster, where `torchrun` takes the place of Determined's launcher, the Core API only keeps checkpoints.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from determined import core, get_cluster_info

from training.checkpoint import CheckpointFolder, read_checkpoint, write_checkpoint
from training.distributed.collective import agree_on
from training.metrics.figures import Figures
from training.rank import launch_rank
from training.session import Position, check_world, take_device
from training.spec import RunSpec
from training.util.stop import StopSignal


class DeterminedSession:
    """A rank of a Determined trial: metrics, checkpoints and preemption go through the Core API."""

    def __init__(self, spec: RunSpec, out: Path, stop: StopSignal) -> None:
        """Open the Core API's context; its own connections between the ranks come before torch's.

        Raises:
            LaunchError: there are not as many ranks as the work has, or a device is missing.
        """
        self._info = get_cluster_info()
        distributed = None
        if "RANK" in os.environ:
            # On a cluster its launcher says where the chief is; off one, it is where torch's ranks meet.
            chief = None if self._info else os.environ["MASTER_ADDR"]
            distributed = core.DistributedContext.from_torch_distributed(chief_ip=chief)
        storage = None if self._info else str((out / "checkpoints").absolute())
        self._context = core.init(
            distributed=distributed,
            checkpoint_storage=storage,
            # The ranks vote before every step anyway, so only one of them asks the master.
            preempt_mode=core.PreemptMode.ChiefOnly,
            tensorboard_mode=core.TensorboardMode.MANUAL,
        )
        self._context.__enter__()
        self.rank = self._context.distributed.rank
        self.world_size = self._context.distributed.size
        self.local_rank = self._context.distributed.local_rank
        check_world(spec, self.world_size)
        self.device = take_device(spec.conditions.device, self.local_rank)
        self.goes_on_later = self._info is not None
        self._work = spec.work
        self._stop = stop
        self._figures = Figures(out) if self.rank == 0 else None
        self._storage = Path(storage) if storage else None

    def report(self, event: str, **figures: Any) -> None:
        """Write the event as every stack does; an epoch's figures are also validation metrics."""
        if not self._figures:
            return
        self._figures.event(event, figures)
        if event == "epoch":
            self._report_epoch(figures["epoch"] * self._work.steps_per_epoch, figures)

    def _report_epoch(self, steps: int, figures: dict[str, Any]) -> None:
        metrics = {name: value for name, value in figures.items() if isinstance(value, int | float)}
        # A search by successive halving reads a trial's length from a metric.
        metrics["batches"] = steps
        self._context.train.report_validation_metrics(steps_completed=steps, metrics=metrics)

    def record(self, steps: list[dict[str, Any]], ranks: list[dict[str, Any]]) -> None:
        """Write every step as every stack does; the last one is reported as training metrics."""
        if not self._figures:
            return
        self._figures.steps(steps, ranks)
        last = steps[-1]
        done = (last["epoch"] - 1) * self._work.steps_per_epoch + last["step"]
        names = ("loss", "lr", "samples_per_s", "tokens_per_s", "memory_mb")
        metrics = {name: last[name] for name in names if name in last}
        self._context.train.report_training_metrics(steps_completed=done, metrics=metrics)

    def progress(self, done: float) -> None:
        """Write the event as every stack does, and tell the master in a blocking request."""
        if not self._figures:
            return
        self._figures.event("progress", {"done": done})
        self._context.train.report_progress(done)

    def save_checkpoint(self, state: dict[str, Any] | None, position: Position) -> None:
        """Keep a checkpoint in Determined's storage."""
        if state is None:
            return
        metadata = {"steps_completed": position.steps, "epochs": position.epochs}
        with self._context.checkpoint.store_path(metadata) as (path, _):
            write_checkpoint(path, state, self._work.digest, position)

    def latest_checkpoint(self) -> dict[str, Any] | None:
        """The trial's latest checkpoint; off a cluster, the newest good one in the run's folder."""
        if self._info is None:
            return self._newest_of_files()
        latest = self._info.latest_checkpoint
        if latest is None:
            return None
        with self._context.checkpoint.restore_path(latest) as path:
            return read_checkpoint(path, self._work.digest)

    def should_stop(self) -> bool:
        """Whether the cluster wants the slots back (only rank 0 asks), or a signal arrived."""
        wanted_back = self.rank == 0 and self._context.preempt.should_preempt()
        return wanted_back or self._stop.requested()

    def close(self) -> None:
        """Finish reporting, and leave the context."""
        if self._figures:
            self._figures.close()
        self._context.__exit__(None, None, None)

    def _newest_of_files(self) -> dict[str, Any] | None:
        assert self._storage is not None
        chosen: str | None = None
        if self.rank == 0:
            checkpoints = CheckpointFolder(self._storage, self._work.digest, self._work.keep_checkpoints)
            chosen, faults = checkpoints.newest()
            for fault in faults:
                self.report("checkpoint_passed_over", message=fault)
        chosen = agree_on(self, chosen)
        return read_checkpoint(self._storage / chosen, self._work.digest) if chosen is not None else None


def starter() -> str | None:
    """Who starts this rank: each time that Determined does, it is another allocation of the trial's."""
    info = get_cluster_info()
    return f"Determined's allocation {info.allocation_id}" if info else None


if __name__ == "__main__":
    launch_rank(
        "One rank of a run, started by Determined's launcher.", begin=DeterminedSession, starter=starter()
    )
