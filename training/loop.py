"""The training loop: one function, the same for every stack."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from training.collective import gather, replicate, sum_over_ranks
from training.data import Reviews, derive_seed, global_batches, open_dataset, rank_share
from training.model import build_model, learning_rate_factor
from training.phases import Phases
from training.process import peak_memory_mb
from training.session import Session
from training.spec import Work
from training.stop import Stopped

REPORT_EVERY = 1.0  # s


@dataclass
class Training:
    """Everything that a step reads or changes."""

    work: Work
    session: Session
    phases: Phases
    train_reviews: Reviews
    validation_reviews: Reviews
    model: torch.nn.Module  # what is evaluated and kept
    replica: torch.nn.Module  # the same weights, wrapped so that gradients are averaged over the ranks
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    epochs: list[dict[str, Any]] = field(default_factory=list)  # figures of the epochs that are done

    @property
    def learning_rate(self) -> float:
        """The one that the next step uses."""
        rate: float = self.optimiser.param_groups[0]["lr"]
        return rate


@dataclass(frozen=True)
class Outcome:
    """What training leaves behind."""

    model: torch.nn.Module
    epochs: list[dict[str, Any]]  # figures of each epoch, also of those before a checkpoint
    steps: int  # taken here, without those before a checkpoint


def train(work: Work, data: Path, session: Session, phases: Phases) -> Outcome:
    """Do `work` as one of its ranks, from the newest checkpoint of it if there is one.

    Args:
        work: what is to be done; every rank is given the same.
        data: folder of the prepared data set, on this node.
        session: this rank's launcher.
        phases: where the time is written; the caller has begun none.

    Raises:
        DataError: the data set is not the one that the work asks for.
        Stopped: the session was told to stop.
    """
    phases.begin("data")
    train_reviews, validation_reviews = open_dataset(data, work.data_digest)
    phases.begin("other")
    training = set_up(work, train_reviews, validation_reviews, session, phases)
    phases.begin("checkpoint")
    resume(training)
    phases.begin("other")
    session.report(
        "start",
        epochs=work.epochs,
        steps_per_epoch=work.steps_per_epoch,
        world_size=session.world_size,
        parameters=sum(parameter.numel() for parameter in training.model.parameters()),
    )
    first = len(training.epochs) + 1
    for epoch in range(first, work.epochs + 1):
        started = time.perf_counter()
        figures = {"epoch": epoch} | train_epoch(training, epoch)
        if epoch % work.evaluate_every_epochs == 0 or epoch == work.epochs:
            phases.begin("evaluation")
            figures |= evaluate(training)
        phases.begin("other")
        phases.settle()
        figures["seconds"] = time.perf_counter() - started
        session.report("epoch", **figures)
        training.epochs.append(figures)
        if work.checkpoint_every_epochs and epoch % work.checkpoint_every_epochs == 0:
            phases.begin("checkpoint")
            save(training)
            phases.begin("other")
    phases.settle()
    return Outcome(training.model, training.epochs, (work.epochs + 1 - first) * work.steps_per_epoch)


def set_up(
    work: Work, train_reviews: Reviews, validation_reviews: Reviews, session: Session, phases: Phases
) -> Training:
    """What training needs before its first step: equal weights on all ranks, dropout of each its own."""
    model = build_model(work).to(session.device)
    torch.manual_seed(derive_seed(work.seed, "dropout", session.rank))
    # Weight decay on all parameters; `fused` is the same arithmetic in one pass.
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=work.learning_rate, weight_decay=work.weight_decay, fused=True
    )
    steps = work.steps_per_epoch * work.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: learning_rate_factor(step, work.warmup_steps, steps)
    )
    replica = replicate(model, session, phases)
    return Training(
        work, session, phases, train_reviews, validation_reviews, model, replica, optimiser, schedule
    )


def train_epoch(training: Training, epoch: int) -> dict[str, Any]:
    """Take every step of `epoch` (from 1).

    Returns `train_loss`, the mean over all its reviews and ranks, and `lr`, the last step's learning rate.

    A rank's loss is its reviews' mean, weighted by `share x ranks / batch`: 1 unless the batch is uneven.
    So the mean over the ranks, which is what DDP makes of the gradients, is the mean over the global batch.
    """
    work, session, phases, replica = training.work, training.session, training.phases, training.replica
    replica.train()
    loss_sum = torch.zeros((), dtype=torch.float64, device=session.device)
    reviews = 0
    watch = ProgressWatch(training, epoch)
    batches = global_batches(
        len(training.train_reviews),
        work.global_batch,
        keep_last=work.last_batch == "keep",
        seed=work.seed,
        epoch=epoch,
    )
    for step, global_batch in enumerate(batches, start=1):
        if session.should_stop():
            raise Stopped(f"step {step} of epoch {epoch} was next.")

        phases.begin("data")
        share = rank_share(global_batch, session.rank, session.world_size)
        weight = len(share) * session.world_size / len(global_batch)
        # A rank without a review in this batch takes one all the same, with weight 0: the others wait for it.
        batch = training.train_reviews.batch(share if len(share) else global_batch[:1], session.device)

        phases.begin("forward")
        logits = replica(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask
        ).logits  # [reviews, 2]
        mean = functional.cross_entropy(logits, batch.labels)
        loss = mean * weight

        phases.begin("backward")  # `timed_allreduce` begins "exposed_sync" in it
        loss.backward()  # type: ignore[no-untyped-call]

        phases.begin("optimiser")
        learning_rate = training.learning_rate
        training.optimiser.step()
        training.schedule.step()
        training.optimiser.zero_grad()

        phases.begin("other")
        loss_sum += loss.detach() * (len(global_batch) / session.world_size)
        reviews += len(global_batch)
        watch.step(step, mean, learning_rate, len(global_batch))

    return {"train_loss": sum_over_ranks(session, loss_sum).item() / reviews, "lr": learning_rate}


@torch.inference_mode()
def evaluate(training: Training) -> dict[str, Any]:
    """Loss and accuracy over the validation split: each review counted exactly once, whatever the world size.

    Raises:
        RuntimeError: the ranks together did not count as many reviews as there are.
    """
    session, reviews, model = training.session, training.validation_reviews, training.model
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64, device=session.device)  # loss, correct, reviews
    share = rank_share(torch.arange(len(reviews)), session.rank, session.world_size)
    for chosen in torch.split(share, training.work.batch_per_worker):
        if not len(chosen):  # more ranks than reviews
            continue
        batch = reviews.batch(chosen, session.device)
        logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits
        sums[0] += functional.cross_entropy(logits, batch.labels, reduction="sum")
        sums[1] += (logits.argmax(dim=1) == batch.labels).sum()
        sums[2] += len(chosen)
    loss, correct, count = sum_over_ranks(session, sums).tolist()
    if count != len(reviews):
        raise RuntimeError(f"The ranks evaluated {count:.0f} reviews together, but there are {len(reviews)}.")
    return {
        "validation_loss": loss / count,
        "validation_accuracy": correct / count,
        "validation_correct": int(correct),
        "validation_count": int(count),
    }


def save(training: Training) -> None:
    """Keep all that the next epochs depend on, every rank's random state included."""
    session = training.session
    random_states = gather(session, _random_state(session.device))
    if session.rank == 0:
        state = {
            "epochs": training.epochs,
            "model": training.model.state_dict(),
            "optimiser": training.optimiser.state_dict(),
            "schedule": training.schedule.state_dict(),
            "random_states": random_states,
        }
        session.save_checkpoint(len(training.epochs), state)


def resume(training: Training) -> None:
    """Go on from the newest checkpoint of this work, if there is one: the same bits as if never interrupted.

    Raises:
        RuntimeError: the ranks do not see the same checkpoint.
    """
    session = training.session
    state = session.latest_checkpoint()
    seen = gather(session, len(state["epochs"]) if state else 0)
    if len(set(seen)) > 1:
        raise RuntimeError(
            f"The ranks see different checkpoints (of epochs {seen}); is their storage shared?"
        )
    if state is None:
        return
    training.model.load_state_dict(state["model"])
    training.optimiser.load_state_dict(state["optimiser"])
    training.schedule.load_state_dict(state["schedule"])
    training.epochs[:] = state["epochs"]
    _settle_buckets(training)
    _set_random_state(state["random_states"][session.rank], session.device)


def _settle_buckets(training: Training) -> None:
    # DDP arranges the gradients anew after its first step, and with three ranks or more a gradient's place
    # decides in which order it is summed. Throw-away passes bring them to where they were at the checkpoint.
    batch = training.train_reviews.batch(torch.zeros(1, dtype=torch.int64), training.session.device)
    for _ in range(2):  # the new arrangement is made at the start of the second
        training.replica(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask
        ).logits.sum().backward()
    training.optimiser.zero_grad()


def _random_state(device: torch.device) -> list[torch.Tensor]:
    on_device = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_device]


def _set_random_state(states: list[torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)


class ProgressWatch:
    """Reports steps, about once a second and the last one of each epoch."""

    def __init__(self, training: Training, epoch: int) -> None:
        self._training = training
        self._epoch = epoch
        self._since = time.perf_counter()
        self._reviews = 0  # of all ranks, since the last report

    def step(self, step: int, loss: torch.Tensor, learning_rate: float, reviews: int) -> None:
        """A step (from 1) is done: `loss` is this rank's, `reviews` all ranks'; padding counts as tokens."""
        work, session = self._training.work, self._training.session
        self._reviews += reviews
        now = time.perf_counter()
        if now - self._since < REPORT_EVERY and step < work.steps_per_epoch:
            return
        rate = self._reviews / (now - self._since)
        session.report(
            "step",
            epoch=self._epoch,
            step=step,
            steps=work.steps_per_epoch,
            loss=loss.item(),
            lr=learning_rate,
            samples_per_s=rate,
            tokens_per_s=rate * work.data.max_length,
            memory_mb=_memory_mb(session.device),
        )
        self._since, self._reviews = now, 0


def _memory_mb(device: torch.device) -> float:
    """The most memory held so far, in MB (2^20 bytes): of the GPU, or of the process where there is none."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else peak_memory_mb()
