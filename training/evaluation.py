"""What the model is worth on a split that it does not learn from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import torch

from training.data.batches import rank_share
from training.distributed.collective import agree_on, gather_at_first, sum_over_ranks
from training.errors import WorkloadError
from training.state import Training
from training.util.files import replacing
from training.workload import Batch, to_device

if TYPE_CHECKING:
    from training.metrics.library import Accuracy

PREDICTIONS: Final = "predictions-{split}.parquet"
"""Name of the file in the run's folder."""

CORRECT: Final = "correct"
"""Name of the sum that the library `evaluate` counts in the place of a workload."""

Arrays = dict[str, np.ndarray[Any, Any]]


@torch.inference_mode()
def evaluate(training: Training, split: str, epoch: int, *, keep: bool) -> dict[str, Any]:
    """The metrics over a split: each sample counted exactly once, whatever the world size.

    Each rank evaluates its share, or all of it if the conditions say so; the figures are then the rank's own.

    Args:
        training: as it is now.
        split: validation or test; the metrics' names begin with it.
        epoch: after which it is, from 1.
        keep: write the predictions into the run's folder.

    Raises:
        RuntimeError: the ranks together counted more or fewer samples than there are.
        WorkloadError: `evaluate` is to count, and the workload has no sum for that.
    """
    session, workload, model = training.session, training.workload, training.model
    samples = training.work.data.splits[split]
    gathers = keep or bool(workload.conditions.metrics)
    model.eval()
    # The workload's sums, and the number of samples.
    sums = torch.zeros(len(workload.SUMS) + 1, dtype=torch.float64, device=session.device)
    alone = workload.conditions.evaluation == "replicated"
    whole = torch.arange(samples)
    share = whole if alone else rank_share(whole, session.rank, session.world_size)
    in_training = -(-training.work.batch_per_worker // training.work.gradient_accumulation)
    size = workload.conditions.evaluation_batch or in_training
    parts = [chosen for chosen in torch.split(share, size) if len(chosen)]  # none if there are more ranks
    mine = []
    requests = ((split, chosen.tolist(), epoch) for chosen in parts)
    with closing(training.feed(requests)) as fed, _library(training) as library:
        for chosen, batch in zip(parts, fed, strict=True):
            with training.computing():
                predictions = workload.predict(model, to_device(workload.ready(batch), session.device))
            sums[:-1] += workload.score(predictions)
            sums[-1] += len(chosen)
            if library is not None:
                predicted, true = workload.classes(predictions)
                library.add_batch(predictions=predicted, references=true)
            if gathers and (session.rank == 0 or not alone):
                mine.append(_arrays(predictions))
        if library is not None and parts:  # it refuses to count nothing
            sums[workload.SUMS.index(CORRECT)] = library.compute(normalize=False)["accuracy"]
    *totals, count = (sums if alone else sum_over_ranks(session, sums)).tolist()
    if count != samples:
        raise RuntimeError(f"The ranks evaluated {count:.0f} samples together, but there are {samples}.")
    metrics = workload.metrics(dict(zip(workload.SUMS, totals, strict=True)), samples) | {"count": samples}
    if gathers:
        metrics |= _together(training, split, mine, keep)
    return {f"{split}_{name}": value for name, value in metrics.items()}


@contextmanager
def _library(training: Training) -> Iterator[Accuracy | None]:
    """The library's metric if it is to count; its files are in the run's folder until the end.

    Each rank has one of its own, for what it evaluates, and the counts are summed like all else. With
    `num_process` rank 0 would compute alone, from files that the others leave on shared storage. They find
    one another there by locks, wait in vain for a rank without samples, and fail after 100 s.
    """
    workload = training.workload
    if workload.conditions.scoring == "direct":
        yield None
        return
    from training.metrics.library import Accuracy  # which no other run needs

    if CORRECT not in workload.SUMS:
        raise WorkloadError(
            f"The class {type(workload).__name__} has no sum '{CORRECT}' in its SUMS, which "
            "scoring: evaluate counts; add it, or leave that out."
        )
    # If the evaluation fails, its open files can't all be removed over NFS; that is not what it failed from.
    with TemporaryDirectory(prefix="evaluate-", dir=workload.run, ignore_cleanup_errors=True) as folder:
        yield Accuracy(cache_dir=folder)


def _together(training: Training, split: str, mine: list[Arrays], keep: bool) -> dict[str, float]:
    """The further metrics, on every rank, from the predictions of all ranks, which rank 0 keeps if asked."""
    session, workload = training.session, training.workload
    gathered = gather_at_first(session, mine)
    further: dict[str, float] = {}
    if gathered is not None:
        parts = [part for of_rank in gathered for part in of_rank]
        whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if workload.conditions.metrics:
            further = workload.further_metrics(whole, workload.conditions.metrics)
        if keep:
            _write(workload.run / PREDICTIONS.format(split=split), whole)
    return agree_on(session, further)


def _arrays(predictions: Batch) -> Arrays:
    return {name: tensor.detach().cpu().numpy() for name, tensor in predictions.items()}


def _write(path: Path, predictions: Arrays) -> None:
    """Write a split's predictions whole: a row for each sample, in their order."""
    from pyarrow import parquet  # which no run needs that keeps none

    columns: dict[str, Any] = {}
    for name, values in predictions.items():
        flat = pa.array(values.reshape(-1))
        columns[name] = flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values[0].size)
    samples = len(next(iter(predictions.values())))
    with replacing(path) as draft:
        parquet.write_table(pa.table({"sample": np.arange(samples)} | columns), draft)
