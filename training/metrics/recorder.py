"""Figures of every step: collected as they come, written about once a second, or immediately on request."""

from __future__ import annotations

import math
import time
from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from training.errors import DivergedError
from training.session import RankStatus, Session
from training.spec import Work
from training.util.process import peak_memory_mb

WRITE_EVERY: Final = 1.0  # s


@dataclass(frozen=True)
class _Step:
    epoch: int
    step: int  # of the epoch, from 1
    ended: float
    loss: torch.Tensor  # stays on its device: reading it immediately would make a GPU wait
    learning_rate: float
    samples: int  # of all ranks


class Recorder:
    """Takes every step's figures and passes them to the session in batches."""

    def __init__(
        self,
        work: Work,
        session: Session,
        status: RankStatus,
        seconds: MutableSequence[float],
        every_step: bool = False,
    ) -> None:
        """Nothing is recorded yet; the first step begins now.

        Args:
            work: what is done.
            session: where the figures go.
            status: this rank's progress; the newest figures go there, too.
            seconds: gets the time of each step, from the end of the one before.
            every_step: pass them on after each step, with the progress of training.
        """
        self._work = work
        self._session = session
        self._status = status
        self._every_step = every_step
        self._unwritten: list[_Step] = []
        self._seconds = seconds
        self._written = self._before = self._ended = time.perf_counter()

    def pause(self) -> None:
        """Leave the time since the last step out of the next one."""
        self._before = self._ended = time.perf_counter()

    def step(self, epoch: int, step: int, loss: torch.Tensor, learning_rate: float, samples: int) -> None:
        """Record a finished step.

        Args:
            epoch: from 1.
            step: of the epoch, from 1.
            loss: this rank's, a scalar.
            learning_rate: the step's.
            samples: of all ranks together.

        Raises:
            DivergedError: the loss of a step since the last write is not a number.
        """
        now = time.perf_counter()
        self._seconds.append(now - self._ended)
        self._ended = now
        self._unwritten.append(_Step(epoch, step, now, loss.detach(), learning_rate, samples))
        if self._every_step or now - self._written >= WRITE_EVERY or step == self._work.steps_per_epoch:
            self.write()
        if self._every_step:
            done = (epoch - 1) * self._work.steps_per_epoch + step
            self._session.progress(done / self._work.steps)

    def write(self) -> None:
        """Pass on everything not yet written (errors: `step`)."""
        if not self._unwritten:
            return
        steps, self._unwritten = self._unwritten, []
        losses = torch.stack([each.loss for each in steps]).tolist()
        memory = memory_mb(self._session.device)
        rows = []
        for each, loss in zip(steps, losses, strict=True):
            rate = each.samples / (each.ended - self._before)
            self._before = each.ended
            rows.append(self._row(each, loss, rate, memory))
        self._update_status(rows[-1])
        self._session.record(rows, self._status.ranks() if self._session.rank == 0 else [])
        self._written = time.perf_counter()
        for row in rows:
            if not math.isfinite(row["loss"]):
                raise DivergedError(
                    f"The loss became {row['loss']} in step {row['step']} of epoch {row['epoch']} "
                    f"(learning rate {row['lr']:.3g}): use a lower learning rate, or a longer warm-up."
                )

    def _update_status(self, row: dict[str, Any]) -> None:
        """This rank's own figures: all ranks take a step together, each with its share of the samples."""
        own = {name: row[name] for name in ("epoch", "step", "loss", "memory_mb")}
        self._status.figures = own | {"samples_per_s": row["samples_per_s"] / self._session.world_size}

    def _row(self, each: _Step, loss: float, rate: float, memory: float) -> dict[str, Any]:
        row = {
            "epoch": each.epoch,
            "step": each.step,
            "steps": self._work.steps_per_epoch,
            "loss": loss,
            "lr": each.learning_rate,
            "samples_per_s": rate,
            "memory_mb": memory,
        }
        # With other padding, how many are computed depends on the batch.
        tokens = self._work.data.tokens_per_sample if self._work.padding == "max_length" else None
        return row if tokens is None else row | {"tokens_per_s": rate * tokens}


def memory_mb(device: torch.device) -> float:
    """Peak memory so far, in MB (2^20 bytes): of the GPU, or of the process on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else peak_memory_mb()
