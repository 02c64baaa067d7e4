"""Which batch fits into memory, found out on the spot when one did not."""

from __future__ import annotations

import traceback

import torch
from torch.nn import functional

from training.errors import ShortOfMemoryError, first_line, out_of_memory
from training.state import Training


def explain_shortage(training: Training, error: Exception) -> ShortOfMemoryError:
    """What to do where a step ran out of memory: the largest halved batch that fits is tried out.

    Args:
        training: what the step was part of; no further step is taken with it.
        error: what the step ended with. What its frames held is let go.
    """
    reason = first_line(error).rstrip(".")
    traceback.clear_frames(error.__traceback__)
    work = training.work
    tried = -(-work.batch_per_worker // work.gradient_accumulation)
    fits = fitting_batch(training, tried // 2)
    if fits is None:
        advice = "not even one review at a time does: take a shorter max_length or a smaller model"
    elif work.gradient_accumulation > 1:
        accumulation = -(-work.batch_per_worker // fits)
        advice = f"{fits} do here: take gradient_accumulation {accumulation}"
    else:
        accumulation = -(-work.batch_per_worker // fits)
        advice = (
            f"{fits} do here: take batch_per_worker {fits}, or keep the batch and take gradient_accumulation "
            f"{accumulation}; activation_checkpointing or a shorter max_length also help"
        )
    return ShortOfMemoryError(
        f"The memory does not suffice for {tried} reviews of {work.data.max_length} tokens at once "
        f"({reason}); {advice}."
    )


def fitting_batch(training: Training, largest: int) -> int | None:
    """The most reviews, of `largest`, its half, its quarter and so on, that fit in memory; None: not one."""
    size = largest
    while size:
        if _fits(training, size):
            return size
        size //= 2
    return None


def _fits(training: Training, size: int) -> bool:
    device, length = training.session.device, training.work.data.max_length
    training.optimiser.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    weights = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
    try:
        # AdamW's two moments, where the first step has not made them yet.
        moments = [] if training.optimiser.state else [torch.empty_like(each) for each in weights * 2]
        tokens = torch.zeros(size, length, dtype=torch.long, device=device)
        labels = torch.zeros(size, dtype=torch.long, device=device)
        gradients = []
        # Twice, with the first gradients kept: what accumulating them takes.
        for _ in range(2):
            logits = training.model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).logits
            # Not `backward`: DistributedDataParallel would send gradients to ranks that do not expect any.
            gradients.append(torch.autograd.grad(functional.cross_entropy(logits, labels), weights))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)
        return False
    del moments, gradients
    return True
