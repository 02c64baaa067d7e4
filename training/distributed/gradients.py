"""How ranks exchange gradients: hooks for DistributedDataParallel, by the work's `gradient_sync`."""

# No `from __future__ import annotations` here: PyTorch needs a hook's annotations to be the types themselves.

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # exists, but mypy can't see it
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook, fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from training.distributed.touched_rows import TouchedRows, lookup_tables
from training.errors import WorkloadError
from training.spec import Work

Reduced = torch.futures.Future[torch.Tensor]
Hook = Callable[[Any, GradBucket], Reduced]

TOKENS_PER_ROW: Final = 4
"""At most so many tokens that all ranks take in a step, for each row of a table: `auto` sends rows of it.

Texts repeat their words: 4,096 tokens of IMDB reviews (32 cut at 128) touch 1,200 of a vocabulary's 30,522
rows, and 131,072 (256 padded to 512) touch 8,200. So this many tokens touch about a quarter of the rows, and
whatever they touch, `rows` sends no more than `dense` and a byte for each row.
"""

LEAST_SHARE: Final = 0.1
"""Of a model's parameters that are such tables: with less, `auto` takes `dense`."""

MB: Final = 2**20  # bytes
BUCKETS: Final = 4
"""Into about so many parts gradients are divided where only rows are sent: most are on their way while the
backward pass goes on, and none is so small that the messages themselves take the time."""
SMALLEST_MB, LARGEST_MB = 0.25, 25.0  # of a part; the largest is DistributedDataParallel's own

EPSILON: Final = 1e-8  # keeps PowerSGD from dividing by the length of a gradient that is all zeros


def choose_sync(model: torch.nn.Module, work: Work) -> str:
    """How the ranks of `work` exchange gradients; its `gradient_sync`, decided where that is `auto`.

    It depends on the model's shape and the work alone, so every repetition decides alike.

    Raises:
        WorkloadError: only rows are to be sent, and the model has no table of which a step touches some.
    """
    tables = lookup_tables(model)
    if work.gradient_sync == "rows" and not tables:
        raise WorkloadError(
            f"gradient_sync: rows needs an nn.Embedding whose weights nothing else uses and whose gradients "
            f"are not sparse, and the model of {work.workload} has none; use auto or dense."
        )
    if work.gradient_sync != "auto":
        return work.gradient_sync
    each = work.data.tokens_per_sample
    if each is None:
        return "dense"
    tokens = each * work.global_batch
    large = sum(table.numel() for table in tables if tokens <= TOKENS_PER_ROW * len(table))
    whole = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return "rows" if large and large >= LEAST_SHARE * whole else "dense"


def settings_of(model: torch.nn.Module, gradient_sync: str) -> dict[str, Any]:
    """What DistributedDataParallel is given, beside its defaults, to send gradients in this way."""
    sent = [each for each in model.parameters() if each.requires_grad]
    if gradient_sync == "powersgd":
        # In one part: PowerSGD sends each part's matrices when the sum before them is there, so with several
        # parts the order of messages is a matter of chance, and gloo takes one part's for another's.
        return {"bucket_cap_mb": sum(each.nbytes for each in sent) / MB + 1}
    if gradient_sync != "rows":
        return {}
    tables = lookup_tables(model)
    rest = sum(each.nbytes for each in sent if each not in tables)
    cap = min(max(rest / BUCKETS / MB, SMALLEST_MB), LARGEST_MB)
    # Gradients stay in the buckets: a table, most of whose rows are zeros, need not be copied back.
    return {"bucket_cap_mb": cap, "gradient_as_bucket_view": True}


def register(
    replica: DistributedDataParallel,
    gradient_sync: str,
    on_last_bucket: Callable[[], None],
    whole_steps: int,
) -> None:
    """Have `replica` send its gradients in this way.

    Args:
        replica: made with `settings_of`.
        gradient_sync: one of the work's, but not `auto`.
        on_last_bucket: called in each backward pass once its last gradients are ready.
        whole_steps: how many steps PowerSGD begins without compressing anything, at least 2.
    """
    hooks: dict[str, Callable[[], tuple[Any, Hook]]] = {
        "dense": lambda: (None, allreduce),
        "rows": lambda: (TouchedRows(replica), allreduce_rows),
        "bf16": lambda: (None, bf16_compress_hook),
        "fp16": lambda: (None, fp16_compress_hook),
        "powersgd": lambda: (
            PowerSGDState(None, start_powerSGD_iter=whole_steps, orthogonalization_epsilon=EPSILON),
            powerSGD_hook,
        ),
    }
    state, hook = hooks[gradient_sync]()

    def timed(state: Any, bucket: GradBucket) -> Reduced:
        if bucket.is_last():
            on_last_bucket()
        return hook(state, bucket)

    replica.register_comm_hook(state, timed)


def allreduce(_: None, bucket: GradBucket) -> Reduced:
    """What DistributedDataParallel does with a bucket of gradients anyway, bit for bit.

    (The hook that comes with PyTorch divides by the world size, while DistributedDataParallel itself
    multiplies by the reciprocal: with three ranks the last bit differs.)
    """
    return _mean(bucket.buffer())


def allreduce_rows(rows: TouchedRows, bucket: GradBucket) -> Reduced:
    """As `allreduce`, but of tables only those rows that some rank has looked up; the rest are zeros.

    With two ranks the gradients are the same to the last bit: all that is left out is 0 + 0. With more, the
    order in which ranks are summed depends on a number's place in what is sent, so they agree to rounding.
    """
    whole: torch.Tensor = bucket.buffer()
    found = [
        (gradient, rows.of(parameter, gradient))
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
    ]
    if bucket.is_last():
        rows.forget()
    if all(touched is None for _, touched in found):
        return _mean(whole)
    parts = [
        gradient.flatten() if touched is None else gradient.index_select(0, touched).flatten()
        for gradient, touched in found
    ]
    sizes = [len(part) for part in parts]

    def put_back(sent: Reduced) -> torch.Tensor:
        for (gradient, touched), part in zip(found, torch.split(sent.value(), sizes), strict=True):
            if touched is None:
                gradient.copy_(part.view_as(gradient))
            else:
                gradient.index_copy_(0, touched, part.view(len(touched), -1))
        return whole

    return _mean(torch.cat(parts)).then(put_back)


def _mean(gradients: torch.Tensor) -> Reduced:
    """The mean over all ranks, in place, once it is there."""
    work = dist.all_reduce(gradients.mul_(1.0 / dist.get_world_size()), async_op=True)
    reduced: Reduced = work.get_future().then(lambda future: future.value()[0])
    return reduced
