"""A simulated accelerator: a step takes a set time, and no model is trained.

What a run does on the processors of a node with a GPU, without a GPU: batches are fed, lines are printed,
ranks meet in every step, epochs are evaluated and reported as ever; the forward and backward pass and the
optimiser are a wait. A few weights are moved by a rule that depends on every batch, so that equal digests
still prove that equal batches were taken in equal order.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping

import torch

from training.workload import Batch, Workload

WEIGHTS = 1024
EVALUATION = 1 / 3  # of a step's time, for as many samples: a forward pass without a backward pass
SPIN_S = 0.002  # before the end of a wait, during which it asks for the time instead of sleeping


class Weights(torch.nn.Module):
    """What takes the place of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(WEIGHTS))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """A scalar whose gradient is `signal` for every weight."""
        return (self.weights * signal).sum()


class Simulated(Workload):
    """Feeds what another workload feeds, and waits where that one computes."""

    SUMS = ()

    def __init__(self, real: Workload, step_ms: float) -> None:
        """`real` makes the batches; a full batch of a rank takes `step_ms` ms."""
        self.real = real
        self.work, self.dataset = real.work, real.dataset
        self.conditions, self.run = real.conditions, real.run
        self._sample_s = step_ms / 1000 / real.work.batch_per_worker

    def build_model(self) -> torch.nn.Module:
        return Weights()

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:
        return self.real.batch(split, chosen, epoch)

    def lengths(self) -> torch.Tensor:
        return self.real.lengths()

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        began = time.perf_counter()
        found: torch.Tensor = model(signal(batch))
        wait_until(began + self._sample_s * _samples(batch))
        return found

    def predict(self, model: torch.nn.Module, batch: Batch) -> Batch:  # noqa: ARG002  # it says nothing
        wait_until(time.perf_counter() + self._sample_s * _samples(batch) * EVALUATION)
        return {}

    def score(self, predictions: Batch) -> torch.Tensor:  # noqa: ARG002  # there are none
        return torch.zeros(0, dtype=torch.float64)

    def metrics(self, sums: Mapping[str, float], samples: int) -> dict[str, float]:  # noqa: ARG002  # nor here
        return {}

    def model_name(self) -> str:
        return f"a simulated accelerator, {self._sample_s * self.work.batch_per_worker * 1000:g} ms a step"

    def data_name(self) -> str:
        return self.real.data_name()


def signal(batch: Batch) -> torch.Tensor:
    """A number from -1 to 1 made of a checksum of all that a batch holds: names, types, shapes and bytes."""
    checksum = 0
    for name in sorted(batch):
        tensor = batch[name].detach().cpu().contiguous()
        checksum = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode(), checksum)
        checksum = zlib.crc32(tensor.flatten().view(torch.uint8).numpy().data, checksum)
    return torch.tensor(checksum / 0xFFFFFFFF * 2 - 1)


def wait_until(moment: float) -> None:
    """Return at this moment (`time.perf_counter`), or at once if it is over; late by a few microseconds."""
    left = moment - time.perf_counter() - SPIN_S
    if left > 0:
        time.sleep(left)
    while time.perf_counter() < moment:
        pass


def _samples(batch: Batch) -> int:
    return len(next(iter(batch.values())))
