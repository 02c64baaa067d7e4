"""Which batch fits into memory, found out by trial when one did not."""

from __future__ import annotations

import traceback

import torch

from training.errors import ShortOfMemoryError, first_line, out_of_memory
from training.state import Training


def explain_shortage(training: Training, error: Exception) -> ShortOfMemoryError:
    """Advice after a step ran out of memory: halves the batch until it fits.

    Args:
        training: what the step was part of; it takes no further step.
        error: what the step ended with; its traceback's frames are cleared.
    """
    reason = first_line(error).rstrip(".")
    traceback.clear_frames(error.__traceback__)
    work, data = training.work, training.work.data
    tried = -(-work.batch_per_worker // work.gradient_accumulation)
    fits = fitting_batch(training, tried // 2)
    shorter = f"a shorter {data.length_setting} or " if data.length_setting else ""
    if fits is None:
        advice = f"not even one sample at a time fits: use {shorter}a smaller model"
    elif work.gradient_accumulation > 1:
        accumulation = -(-work.batch_per_worker // fits)
        advice = f"{fits} fit here: use gradient_accumulation {accumulation}"
    else:
        accumulation = -(-work.batch_per_worker // fits)
        advice = (
            f"{fits} fit here: use batch_per_worker {fits}, or keep the batch and use gradient_accumulation "
            f"{accumulation}; {shorter}activation_checkpointing also helps"
        )
    size = f" of {data.tokens_per_sample} tokens" if data.tokens_per_sample else ""
    return ShortOfMemoryError(f"Not enough memory for {tried} samples{size} at once ({reason}); {advice}.")


def fitting_batch(training: Training, largest: int) -> int | None:
    """The first of `largest`, its half, its quarter and so on that fits in memory; None if not even 1."""
    size = largest
    while size:
        if _fits(training, size):
            return size
        size //= 2
    return None


def _largest_batch(training: Training, size: int) -> torch.Tensor:
    """Numbers of samples, int64 [size]: the longest ones, where batches are grouped by length."""
    samples, lengths = training.work.data.train, training.lengths
    order = torch.arange(samples) if lengths is None else lengths.argsort(descending=True)
    return order[torch.arange(size) % samples]


def _fits(training: Training, size: int) -> bool:
    device, workload = training.session.device, training.workload
    training.optimiser.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    weights = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
    try:
        # An optimiser's two moments, if the first step has not created them yet.
        moments = [] if training.optimiser.state else [torch.empty_like(each) for each in weights * 2]
        batch = training.batch("train", _largest_batch(training, size), epoch=1)
        gradients = []
        # Twice, keeping the first gradients: accumulation holds both.
        for _ in range(2):
            with training.computing():
                loss = workload.loss(training.model, batch)
            # Not `backward`: DistributedDataParallel would send gradients to ranks that do not expect any.
            gradients.append(torch.autograd.grad(loss, weights))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)
        return False
    del moments, gradients
    return True
