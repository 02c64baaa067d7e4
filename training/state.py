"""Everything that a step reads or changes: how it is set up, saved and resumed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from training.compiled import Compilation, begin_pass
from training.distributed.collective import StopVote, gather, replicate, share_buffers
from training.distributed.gradients import choose_sync
from training.feeding import Request, feed
from training.metrics.phases import Phases
from training.precision import computing
from training.session import Position, Session
from training.spec import Work
from training.util.seeds import derive_seed
from training.workload import Batch, Workload, to_device


@dataclass
class Training:
    """The state of training on one rank."""

    workload: Workload
    session: Session
    phases: Phases
    model: torch.nn.Module  # the one that is evaluated and saved
    replica: torch.nn.Module  # the same weights, wrapped so that gradients are averaged over the ranks
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    vote: StopVote
    gradient_sync: str | None  # how gradients are exchanged; None with one rank
    lengths: torch.Tensor | None  # of the samples to train with, where batches are grouped by it
    loss_sum: torch.Tensor  # float64 scalar: this rank's share of the current epoch's loss
    reports_every_step: bool = False
    after_step: Callable[[], None] = lambda: None
    epochs: list[dict[str, Any]] = field(default_factory=list)  # figures of the finished epochs
    epoch_steps: int = 0  # steps done in the current epoch
    steps: int = 0  # steps done in total
    seconds: float = 0.0  # that the current epoch took before its last checkpoint
    step_seconds: array[float] = field(default_factory=lambda: array("d"))  # of the steps of this process

    @property
    def work(self) -> Work:
        """What is done."""
        return self.workload.work

    @property
    def last_learning_rate(self) -> float:
        """The learning rate that the last step used."""
        return self.work.learning_rate * self.workload.learning_rate_factor(self.steps - 1)

    def batch(self, split: str, chosen: torch.Tensor, epoch: int) -> Batch:
        """The samples of a split with the numbers `chosen`, on this rank's device."""
        batch = self.workload.batch(split, chosen, epoch)
        return to_device(self.workload.ready(batch), self.session.device)

    def computing(self) -> AbstractContextManager[Any]:
        """While this is open, the model does one pass, in the work's precision."""
        begin_pass(self.workload.conditions.compile)
        return computing(self.work.precision, self.session.device)

    def feed(self, requests: Iterable[Request]) -> Generator[Batch]:
        """The batches that are asked for, on the CPU, in the way that the conditions say."""
        return feed(self.workload, requests, self.workload.conditions)

    def end_step(self) -> None:
        """Count a finished step."""
        self.epoch_steps += 1
        self.steps += 1
        self.after_step()

    def end_epoch(self, figures: dict[str, Any]) -> None:
        """Add a finished epoch's figures, and start counting the next one's."""
        self.epochs.append(figures)
        self.epoch_steps, self.seconds = 0, 0.0
        self.loss_sum.zero_()

    def no_sync(self) -> AbstractContextManager[None]:
        """While this is open, gradients stay on their rank."""
        if isinstance(self.replica, DistributedDataParallel):
            without_sync: AbstractContextManager[None] = self.replica.no_sync()
            return without_sync
        return nullcontext()


def set_up(
    workload: Workload, session: Session, phases: Phases, compilation: Compilation | None = None
) -> Training:
    """The state before the first step: equal weights on all ranks, dropout seeded differently on each."""
    work = workload.work
    model = workload.model().to(session.device)
    if compilation:
        compilation.compile(model, work)
    torch.manual_seed(derive_seed(work.seed, "dropout", session.rank))
    optimiser = workload.optimiser(model)
    sync = choose_sync(model, work) if session.world_size > 1 else None
    whole_steps = max(2, work.steps // 10)  # before PowerSGD compresses any, as PyTorch advises
    on_last_bucket = partial(phases.begin, "exposed_sync")
    return Training(
        workload=workload,
        session=session,
        phases=phases,
        model=model,
        replica=replicate(model, session, on_last_bucket, sync or "dense", whole_steps),
        optimiser=optimiser,
        schedule=torch.optim.lr_scheduler.LambdaLR(optimiser, workload.learning_rate_factor),
        vote=StopVote(session),
        gradient_sync=sync,
        lengths=workload.lengths() if work.grouping == "length" else None,
        loss_sum=torch.zeros((), dtype=torch.float64, device=session.device),
        reports_every_step=workload.conditions.reporting == "step",
    )


def save(training: Training) -> None:
    """Save all that the next steps depend on, including every rank's random state and share of the loss."""
    session = training.session
    share_buffers(session, training.model)
    own = {
        "random_state": _random_state(session.device),
        "loss_sum": training.loss_sum.item(),
    }
    ranks = gather(session, own)
    state = None
    if session.rank == 0:
        state = {
            "epochs": training.epochs,
            "epoch_steps": training.epoch_steps,
            "steps": training.steps,
            "seconds": training.seconds,
            "model": training.model.state_dict(),
            "optimiser": training.optimiser.state_dict(),
            "schedule": training.schedule.state_dict(),
            "ranks": ranks,
        }
    session.save_checkpoint(state, Position(training.steps, len(training.epochs)))


def resume(training: Training) -> int:
    """Resume from the newest checkpoint of this work, if any: the same bits as if never interrupted.

    Returns the number of steps already done; 0 if there is no checkpoint.

    Raises:
        RuntimeError: the ranks do not see the same checkpoint.
    """
    session = training.session
    state = session.latest_checkpoint()
    seen = gather(session, state["steps"] if state else -1)
    if len(set(seen)) > 1:
        raise RuntimeError(f"The ranks see different checkpoints (steps {seen}); is their storage shared?")
    if state is None:
        return 0
    _settle_buckets(training)  # which changes buffers, such as running means: before they are restored
    training.model.load_state_dict(state["model"])
    training.optimiser.load_state_dict(state["optimiser"])
    training.schedule.load_state_dict(state["schedule"])
    training.epochs[:] = state["epochs"]
    training.epoch_steps, training.steps = state["epoch_steps"], state["steps"]
    training.seconds = state["seconds"]
    own = state["ranks"][session.rank]
    training.loss_sum.fill_(own["loss_sum"])
    _set_random_state(own["random_state"], session.device)
    return training.steps


def _settle_buckets(training: Training) -> None:
    # DistributedDataParallel rearranges the gradients after its first step, and with three ranks or more a
    # gradient's place decides the order of its summation. Throw-away passes restore the arrangement that the
    # checkpoint was made with.
    if training.replica is training.model:
        return
    # Of two samples: normalising over a batch of one is an error.
    batch = training.batch("train", torch.arange(min(2, training.work.data.train)), epoch=1)
    training.replica.train()
    for _ in range(2):  # the second one starts with the rearrangement
        with training.computing():
            loss = training.workload.loss(training.replica, batch)
        loss.backward()  # type: ignore[no-untyped-call]
    training.optimiser.zero_grad()


def _random_state(device: torch.device) -> list[torch.Tensor]:
    on_device = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_device]


def _set_random_state(states: list[torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
