"""Training as in PyTorch's own examples: DistributedDataParallel as it comes, and no engine around it."""

from __future__ import annotations

import time

import torch
from torch.nn.parallel import DistributedDataParallel

from tests.benchmarks.engine import Alone
from training.data.batches import global_batches
from training.util.seeds import derive_seed
from training.workload import Workload


def by_plain_ddp(workload: Workload, session: Alone) -> tuple[list[float], torch.nn.Module]:
    """The seconds of each step, from the end of the one before, and the model that this rank trained.

    Args:
        workload: what to train, on a CPU: the same model, batches, learning rates and clipping as the
            engine's, with the same optimiser.
        session: this rank's; the ranks have met.
    """
    work = workload.work
    model = workload.model()
    torch.manual_seed(derive_seed(work.seed, "dropout", session.rank))
    replica = DistributedDataParallel(model)
    replica.train()  # type: ignore[no-untyped-call]
    optimiser = workload.optimiser(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, workload.learning_rate_factor)
    seconds = []
    for epoch in range(1, work.epochs + 1):
        batches = global_batches(
            work.data.train, work.global_batch, keep_last=True, seed=work.seed, epoch=epoch
        )
        ended = time.perf_counter()
        for chosen in batches:
            batch = workload.batch("train", chosen.chunk(session.world_size)[session.rank], epoch)
            workload.loss(replica, batch).backward()  # type: ignore[no-untyped-call]
            if work.clip_gradients:
                torch.nn.utils.clip_grad_norm_(replica.parameters(), work.clip_gradients)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
            now = time.perf_counter()
            seconds.append(now - ended)
            ended = now
    return seconds, model
