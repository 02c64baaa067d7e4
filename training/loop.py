"""The training loop: one function, the same for every stack."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.compiled import compiling
from training.data.batches import global_batches, rank_share
from training.distributed.collective import share_buffers, sum_over_ranks
from training.errors import DivergedError, Stopped, out_of_memory
from training.evaluation import evaluate
from training.memory import explain_shortage
from training.metrics.phases import Phases
from training.metrics.recorder import Recorder
from training.metrics.trace import tracing
from training.session import RankStatus, Session
from training.simulated import Simulated
from training.spec import Conditions, Work
from training.state import Training, resume, save, set_up
from training.trained import write_model
from training.weights import weights_digest
from training.workload import Batch, open_workload, to_device


@dataclass(frozen=True)
class Outcome:
    """What training leaves behind."""

    model: torch.nn.Module
    epochs: list[dict[str, Any]]  # figures of each epoch, including those before a resume
    steps: int  # taken by this process, excluding those before a resume
    step_seconds: Sequence[float]  # that each of them took
    gradient_sync: str | None  # how gradients were exchanged; None with one rank
    compiled: dict[str, Any] | None  # `Compilation.facts`; None if nothing was


def train(
    work: Work,
    data: Path,
    session: Session,
    phases: Phases,
    status: RankStatus,
    conditions: Conditions,
    run: Path,
) -> Outcome:
    """Do `work` as one of its ranks, resuming from its newest checkpoint if there is one.

    Args:
        work: what to do; every rank is given the same.
        data: folder of the prepared data set, on this node.
        session: this rank's launcher.
        phases: records the time; the caller has begun no phase.
        status: this rank's progress, kept up to date for other threads to read.
        conditions: how to do it; they change how long it takes, not the result.
        run: the run's own folder, which has its tokens if the conditions have them made in the run.

    Raises:
        DataError: the data set is not the one that the work asks for.
        WorkloadError: the workload can't be used.
        LaunchError: the model is to be compiled, and what that needs is missing.
        CheckpointError: a checkpoint is from another work, or it or the model can't be written.
        DivergedError: the loss is no longer a number.
        ShortOfMemoryError: a step does not fit into memory.
        Stopped: the session was told to stop.
        OSError: a file can't be written.
    """
    phases.begin("data")
    workload = open_workload(work, data, conditions, run)
    if work.simulated_step_ms is not None:
        workload = Simulated(workload, work.simulated_step_ms)
    phases.begin("other")
    with compiling(conditions, phases) as compilation:
        training = set_up(workload, session, phases, compilation)
        taken = run_epochs(training, status)
        compiled = compilation.facts() if compilation else None
    return Outcome(
        training.model, training.epochs, taken, training.step_seconds, training.gradient_sync, compiled
    )


def run_epochs(training: Training, status: RankStatus) -> int:
    """Resume if there is a checkpoint, and run the epochs that are left; returns how many steps it took."""
    work, session, phases = training.work, training.session, training.phases
    workload, conditions = training.workload, training.workload.conditions
    phases.begin("checkpoint")
    resumed_from = resume(training)
    phases.begin("other")
    session.report(
        "start",
        epochs=work.epochs,
        steps_per_epoch=work.steps_per_epoch,
        world_size=session.world_size,
        parameters=sum(parameter.numel() for parameter in training.model.parameters()),
        model=workload.model_name(),
        data=workload.data_name(),
        metric=work.data.metric,
        gradient_sync=training.gradient_sync,
    )
    if resumed_from:
        session.report("resume", steps=resumed_from, epochs=len(training.epochs))
    with tracing(conditions.trace, session, workload.run, resumed_from) as training.after_step:
        while len(training.epochs) < work.epochs:
            status.epoch = len(training.epochs) + 1
            run_epoch(training, status)
    if work.data.test:
        phases.begin("evaluation")
        figures = evaluate(training, "test", work.epochs, keep=conditions.predictions)
        phases.begin("other")
        training.epochs[-1] |= figures
        session.report("test", **figures)
    training.vote.settle()
    phases.settle()
    return training.steps - resumed_from


def run_epoch(training: Training, status: RankStatus) -> None:
    """Run the next epoch, or the rest of it: its steps, then evaluation and a checkpoint where due."""
    work, session, phases = training.work, training.session, training.phases
    epoch, started = len(training.epochs) + 1, time.perf_counter() - training.seconds
    phases.settle()
    before = phases.seconds()
    figures = {"epoch": epoch} | train_epoch(training, epoch, status, started)
    due = epoch % work.evaluate_every_epochs == 0 or epoch == work.epochs
    if due and training.workload.conditions.evaluation != "none":
        phases.begin("evaluation")
        share_buffers(session, training.model)
        keep = training.workload.conditions.predictions and epoch == work.epochs
        figures |= evaluate(training, "validation", epoch, keep=keep)
    phases.begin("other")
    phases.settle()
    figures["seconds"] = time.perf_counter() - started
    session.report("epoch", **figures)
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in phases.seconds().items()}
    session.report("phases", epoch=epoch, seconds=spent)
    training.end_epoch(figures)
    if is_to_be_kept(training):
        keep_model(training)
    if work.checkpoint_every_epochs and epoch % work.checkpoint_every_epochs == 0:
        save_checkpoint(training)


def train_epoch(training: Training, epoch: int, status: RankStatus, started: float) -> dict[str, Any]:
    """Take the remaining steps of `epoch` (from 1).

    Returns `train_loss`, the mean over all its samples and ranks, and `lr`, the last step's learning rate.

    Raises:
        DivergedError: the mean is not a number.
        Stopped: the session was told to stop.
    """
    work, session, phases = training.work, training.session, training.phases
    training.replica.train()
    recorder = Recorder(work, session, status, training.step_seconds, training.reports_every_step)
    batches = global_batches(
        work.data.train,
        work.global_batch,
        keep_last=work.last_batch == "keep",
        seed=work.seed,
        epoch=epoch,
        lengths=training.lengths,
    )
    remaining = list(itertools.islice(enumerate(batches, start=1), training.epoch_steps, None))
    requests = (
        ("train", chosen.tolist(), epoch)
        for _, batch in remaining
        for chosen in micro_batches(training, batch)
    )
    with closing(training.feed(requests)) as fed:
        for step, batch in remaining:
            status.step = step
            if training.vote.stop():
                recorder.write()
                training.seconds = time.perf_counter() - started
                stop_before(training, epoch, step)

            phases.begin_step()
            try:
                loss, weight = take_step(training, batch, fed)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                raise explain_shortage(training, error) from error
            phases.end_step("other")

            training.loss_sum += loss * weight * (len(batch) / session.world_size)
            training.end_step()
            recorder.step(epoch, step, loss, training.last_learning_rate, len(batch))
            print_lines(training.workload.conditions.printed_lines, epoch, step)
            if work.checkpoint_every_steps and training.steps % work.checkpoint_every_steps == 0:
                recorder.write()  # raises if training has diverged, which is not worth keeping
                training.seconds = time.perf_counter() - started
                save_checkpoint(training)
                recorder.pause()

    samples = min(work.data.train, work.steps_per_epoch * work.global_batch)
    mean = sum_over_ranks(session, training.loss_sum.clone()).item() / samples
    if mean != mean:
        raise DivergedError(f"The training loss of epoch {epoch} is not a number on one of the ranks.")
    return {"train_loss": mean, "lr": training.last_learning_rate}


def print_lines(number: int, epoch: int, step: int) -> None:
    """Print so many lines about a step, as scripts do; its launcher takes them to wherever it keeps logs."""
    for line in range(1, number + 1):
        sys.stdout.write(f"epoch {epoch}, step {step}: line {line} of {number}\n")


def micro_batches(training: Training, global_batch: torch.Tensor) -> Sequence[torch.Tensor]:
    """The samples that this rank computes in one step, in parts that are computed one after another."""
    share = rank_share(global_batch, training.session.rank, training.session.world_size)
    # A rank without a sample in this batch still takes one, with weight 0: the others wait for it.
    mine = share if len(share) else global_batch[:1]
    parts: Sequence[torch.Tensor] = mine.chunk(training.work.gradient_accumulation)
    return parts


def take_step(
    training: Training, global_batch: torch.Tensor, fed: Iterator[Batch]
) -> tuple[torch.Tensor, float]:
    """One step of the optimiser on the samples numbered `global_batch`; `fed` gives its micro-batches.

    Returns the mean loss of this rank's samples, a scalar, and its weight `share x ranks / batch`: 1 unless
    the batch is uneven. DistributedDataParallel averages gradients over the ranks; the weights make that
    average the mean over the global batch.
    """
    session, phases = training.session, training.phases
    phases.begin("data")
    share = rank_share(global_batch, session.rank, session.world_size)
    weight = len(share) * session.world_size / len(global_batch)
    parts = micro_batches(training, global_batch)
    samples = sum(map(len, parts))
    loss = torch.zeros((), device=session.device)
    for number, chosen in enumerate(parts, start=1):
        phases.begin("data")
        batch = to_device(training.workload.ready(next(fed)), session.device)
        # Gradients accumulate on each rank; only the last micro-batch's pass sends them.
        with nullcontext() if number == len(parts) else training.no_sync():
            loss += forward_backward(training, batch, len(chosen) / samples, weight)
    phases.begin("optimiser")
    if training.work.clip_gradients:
        torch.nn.utils.clip_grad_norm_(training.model.parameters(), training.work.clip_gradients)
    training.optimiser.step()
    training.schedule.step()
    training.optimiser.zero_grad()
    return loss, weight


def forward_backward(training: Training, batch: Batch, fraction: float, weight: float) -> torch.Tensor:
    """Forward and backward pass over a batch that is a `fraction` of this rank's samples in a step.

    Adds the gradients of the batch's share of the mean loss times `weight`; returns that share.
    """
    phases = training.phases
    phases.begin("forward")
    with training.computing():
        loss = training.workload.loss(training.replica, batch) * fraction
    phases.begin("backward")  # its last gradients begin "exposed_sync"
    (loss * weight).backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def is_to_be_kept(training: Training) -> bool:
    """Whether the model as it is now, at the end of an epoch, is the one to keep so far."""
    work, epochs = training.work, training.epochs
    how, metric = training.workload.conditions.save, f"validation_{work.data.metric}"
    if how != "best":
        return how == "last" and len(epochs) == work.epochs
    if metric not in epochs[-1]:  # not evaluated
        return False
    sign = 1 if work.data.higher_is_better else -1
    return all(
        sign * epochs[-1][metric] > sign * each[metric]
        for each in epochs[:-1]
        if metric in each and each[metric] == each[metric]
    )


def keep_model(training: Training) -> None:
    """Keep the model in the run's folder, instead of an earlier one."""
    training.phases.begin("checkpoint")
    if training.session.rank == 0:
        state, metric = training.model.state_dict(), training.work.data.metric
        facts = {
            "work_digest": training.work.digest,
            "weights_digest": weights_digest(state),
            "metric": metric,
            "value": training.epochs[-1].get(f"validation_{metric}"),
        }
        write_model(training.workload.run, state, len(training.epochs), facts)
    training.phases.begin("other")


def save_checkpoint(training: Training) -> None:
    """Write a checkpoint, in a phase of its own."""
    training.phases.begin("checkpoint")
    save(training)
    training.phases.begin("other")


def stop_before(training: Training, epoch: int, step: int) -> None:
    """Stop before a step, as all ranks do; saves a checkpoint if the work keeps any.

    Raises:
        Stopped: always.
    """
    note = ""
    if training.work.keeps_checkpoints:
        save_checkpoint(training)
        note = "; a checkpoint was saved"
    raise Stopped(f"step {step} of epoch {epoch} was next{note}.")
