"""One measurement of memory, in a process that does nothing else."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch.nn.parallel import DistributedDataParallel

from tests.benchmarks.bert import Bert, Case, begin, step
from tests.benchmarks.engine import Alone
from tests.rank_processes import rank_variables
from training.data.batches import global_batches, rank_share
from training.distributed.collective import join, leave, wait_for_all
from training.errors import out_of_memory
from training.memory import fitting_batch
from training.metrics.phases import Phases
from training.spec import Work
from training.state import Training
from training.util.process import keep_freed_memory

STEPS: Final = 60  # of the loops that are compared
M_MMAP_THRESHOLD: Final = -3  # mallopt(3)
ONE_BY_ONE: Final = 64 << 10  # bytes; what is smaller shares the heap


@dataclass(frozen=True)
class Question:
    """What to measure, and on what."""

    kind: Literal["parts", "fits", "engine", "plain loop"]
    case: Case
    data: str  # folder of the prepared data set
    device: str = "cpu"
    budget: int = 0  # bytes beyond the process before it has a model; fits
    largest: int = 0  # samples that are tried at once; fits
    keeps_freed_memory: bool = False  # the C library's allocator as runs have it; engine

    @property
    def place(self) -> torch.device:
        """Where it is measured: of GPUs, the first one."""
        return torch.device(self.device, 0) if self.device == "cuda" else torch.device(self.device)


class HostMemory:
    """This process's resident memory, in bytes."""

    def used(self) -> int:
        """What is resident now."""
        gc.collect()
        return _status("VmRSS")

    def begin_peak(self) -> None:
        """Forget the peak so far."""
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # proc(5): resets VmHWM

    def peak(self) -> int:
        """The most that was resident since the last `begin_peak`."""
        return _status("VmHWM")

    def limit(self, more: int) -> None:
        """Refuse what goes beyond the process as it is by more than so many bytes of addresses."""
        most = _status("VmSize") + more
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


class DeviceMemory:
    """What torch's allocator has given out on a GPU, in bytes; CUDA's own context is not in it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def used(self) -> int:
        """What is given out now."""
        gc.collect()
        return torch.cuda.memory_allocated(self._device)

    def begin_peak(self) -> None:
        """Forget the peak so far."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        """The most that was given out since the last `begin_peak`."""
        return torch.cuda.max_memory_allocated(self._device)

    def limit(self, more: int) -> None:
        """Refuse what goes beyond so many bytes."""
        whole = torch.cuda.get_device_properties(self._device).total_memory
        torch.cuda.set_per_process_memory_fraction(more / whole, self._device)


Memory = HostMemory | DeviceMemory


def _status(name: str) -> int:
    """Bytes in a line of this process's status, see proc(5)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


class Watching(Phases):
    """Notes the memory in use at a step's boundaries: before and after forward passes, and after the last
    backward pass, when the gradients are complete."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory
        self.kept: list[int] = []  # by each forward pass, for the backward pass
        self.before_optimiser = 0
        self._before = 0

    def begin(self, phase: str) -> None:
        """Begin a phase of a step."""
        if phase == "forward":
            self._before = self._memory.used()
        if phase == "backward":
            self.kept.append(self._memory.used() - self._before)
        if phase == "optimiser":
            self.before_optimiser = self._memory.used()


class Saved:
    """Counts the bytes that autograd saves in a forward pass, by the encoder's layer that saves them."""

    def __init__(self, model: Any) -> None:
        held = [*model.parameters(), *model.buffers()]
        self._seen = {each.untyped_storage().data_ptr() for each in held}
        self._alive: list[torch.Tensor] = []  # so that no address is used twice
        self._layer: int | None = None
        self.outside = 0
        self.by_layer: Counter[int] = Counter()
        self.inputs = 0  # of all layers
        self._hooks = []
        for number, layer in enumerate(model.bert.encoder.layer):
            self._hooks += [
                layer.register_forward_pre_hook(self._entering(number)),
                layer.register_forward_hook(self._leaving),
            ]

    def counting(self) -> AbstractContextManager[None]:
        """While this is open, what is saved is counted."""
        return torch.autograd.graph.saved_tensors_hooks(self._pack, lambda kept: kept)

    def _entering(self, number: int) -> Callable[..., None]:
        def enter(_: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
            self._layer = number
            self.inputs += given[0].nbytes

        return enter

    def _leaving(self, *_: object) -> None:
        self._layer = None

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self._alive.append(tensor)
            if self._layer is None:
                self.outside += storage.nbytes()
            else:
                self.by_layer[self._layer] += storage.nbytes()
        return tensor

    def close(self) -> None:
        """Take the hooks off the layers."""
        for hook in self._hooks:
            hook.remove()
        self._alive.clear()


def parts(question: Question, workload: Bert, memory: Memory) -> dict[str, Any]:
    """Bytes of each part of a step, measured and counted."""
    session, case = Alone(device=question.place), question.case
    chosen = torch.arange(case.batch)
    # Libraries take what they keep for good, so that no part is charged with it.
    step(begin(workload, Phases(), session), chosen)
    before = memory.used()
    watching = Watching(memory)
    training = begin(workload, watching, session)
    with_weights = memory.used()
    step(training, chosen)
    after = memory.used()
    watching.kept.clear()
    memory.begin_peak()
    step(training, chosen)
    measured = {
        "weights": with_weights - before,
        "gradients": watching.before_optimiser - after,
        "optimiser": after - with_weights,
        "activations": max(watching.kept),
        "peak": memory.peak() - before,
    }
    return {"measured": measured, "counted": counted(training, case)}


def counted(training: Training, case: Case) -> dict[str, int]:
    """The same parts by arithmetic: bytes of tensors, without anything that only lives inside an operator."""
    model = training.model
    weights = sum(each.nbytes for each in (*model.parameters(), *model.buffers()))
    gradients = sum(each.nbytes for each in model.parameters())
    moments = sum(
        each.nbytes
        for state in training.optimiser.state.values()
        for each in state.values()
        if torch.is_tensor(each)
    )
    kept, most = activations(training, case, -(-case.batch // case.accumulation))
    # Gradients appear as activations go, but those of earlier parts are there all the time.
    beside = gradients + most if case.accumulation > 1 else max(gradients, most)
    return {
        "weights": weights,
        "gradients": gradients,
        "optimiser": moments,
        "activations": kept,
        "peak": weights + moments + beside,
        "parameters": sum(each.numel() for each in model.parameters()),
    }


def activations(training: Training, case: Case, samples: int) -> tuple[int, int]:
    """Bytes that are kept after the forward pass over so many samples, and the most in the backward pass.

    With checkpointing, layers keep their inputs alone, and one layer at a time is computed again.
    """
    model: Any = training.model
    if case.checkpointing:
        model.activation_checkpointing_disable()
    saved = Saved(model)
    with saved.counting():
        batch = training.batch("train", torch.arange(samples), 1)
        with training.computing():
            loss = training.workload.loss(model, batch)
    saved.close()
    del loss
    if not case.checkpointing:
        whole = saved.outside + sum(saved.by_layer.values())
        return whole, whole
    model.activation_checkpointing_enable({"use_reentrant": False})
    kept = saved.outside + saved.inputs
    return kept, kept + max(saved.by_layer.values())


def fits(question: Question, workload: Bert, memory: Memory) -> dict[str, Any]:
    """The largest batches, in powers of two, that fit into a budget.

    `part` is what `training.memory` finds, which also has room for the gradients of another part; `batch` is
    the largest that fits as a whole; `arithmetic` is the same counted, and not only in powers of two.
    """
    session = Alone(device=question.place)
    counted = counted_batch(question, begin(workload, Phases(), session))
    memory.limit(question.budget)
    try:
        training = begin(workload, Phases(), session)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return {"part": 0, "batch": 0, "arithmetic": counted}
    above = 2 ** math.ceil(math.log2(max(1, counted)))
    part = fitting_batch(training, min(question.largest, above)) or 0
    batch, size = part, max(1, 2 * part)
    while size <= question.largest and takes_step(training, size):
        batch, size = size, 2 * size
    return {"part": part, "batch": batch, "arithmetic": counted}


def counted_batch(question: Question, training: Training) -> int:
    """The largest batch that fits by arithmetic; 0 if none does.

    Beside weights and AdamW's two moments there are gradients or activations, whichever take more.
    """
    weights = sum(each.nbytes for each in training.model.parameters())
    if question.budget < 4 * weights:
        return 0
    (_, two), (_, one) = (activations(training, question.case, samples) for samples in (2, 1))
    # What does not grow with the batch counts with its first sample.
    return max(0, 1 + (question.budget - 3 * weights - one) // (two - one))


def takes_step(training: Training, size: int) -> bool:
    """Whether a step of so many samples fits into memory, with the optimiser's state of a step before it."""
    training.optimiser.zero_grad(set_to_none=True)
    try:
        for samples in (1, size):
            step(training, torch.arange(samples) % training.work.data.train)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)
        return False
    return True


def batches(work: Work) -> Iterator[torch.Tensor]:
    """The samples of each step, int64 [global batch], epoch after epoch."""
    epochs = (
        global_batches(work.data.train, work.global_batch, keep_last=False, seed=work.seed, epoch=epoch)
        for epoch in count(1)
    )
    return islice(chain.from_iterable(epochs), STEPS)


def engine(workload: Bert, memory: Memory, session: Alone) -> dict[str, Any]:
    """The peak of the whole process, with the engine's loop."""
    training = begin(workload, Phases(), session)
    for chosen in batches(workload.work):
        step(training, chosen)
    return {"peak": memory.peak()}


def plain_loop(workload: Bert, memory: Memory, session: Alone) -> dict[str, Any]:
    """The peak of the whole process, with a loop as in PyTorch's tutorials."""
    work, device = workload.work, session.device
    network: Any = workload.model().to(device)
    if session.world_size > 1:
        network = DistributedDataParallel(network)
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=work.learning_rate, weight_decay=work.weight_decay, fused=True
    )
    network.train()
    for chosen in batches(work):
        batch = workload.batch("train", rank_share(chosen, session.rank, session.world_size), 1)
        loss = network(**{name: each.to(device) for name, each in batch.items()}).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return {"peak": memory.peak()}


def answer(question: Question, rank: int = 0, port: int = 0) -> dict[str, Any]:
    """What was asked for; what it changes in this process stays changed.

    Args:
        question: what.
        rank: the number of this process among those that train together.
        port: of this machine, where they meet.

    Raises:
        DataError: the data set can't be used.
        OSError: the C library's allocator can't be set.
    """
    torch.set_num_threads(1)
    device = question.place
    set_allocator(question)
    memory = DeviceMemory(device) if device.type == "cuda" else HostMemory()
    case = plain(question.case) if question.kind == "plain loop" else question.case
    workload = Bert(case, Path(question.data))
    workload.batch("train", torch.arange(question.case.batch), 1)  # its pages of the data set are read
    if question.kind in ("parts", "fits"):
        return (parts if question.kind == "parts" else fits)(question, workload, memory)
    session = Alone(device=device, rank=rank, world_size=question.case.workers)
    if session.world_size > 1:
        os.environ |= rank_variables(rank, session.world_size, port)
        join(session)
    found = (engine if question.kind == "engine" else plain_loop)(workload, memory, session)
    wait_for_all(session)
    leave(session)
    return found


def plain(case: Case) -> Case:
    """The same model and batches, computed as they come."""
    return replace(case, bf16=False, skipping=False, fast_dropout=False, gradient_sync="dense")


def set_allocator(question: Question) -> None:
    """Have the C library map each tensor by itself, or keep what is freed, or leave it as it is.

    Where each is mapped by itself, what is resident, and the addresses, are those of what is in use.

    Raises:
        OSError: it can't do so.
    """
    if question.kind in ("parts", "fits"):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        done = mallopt is not None and bool(mallopt(M_MMAP_THRESHOLD, ONE_BY_ONE))
    else:
        done = not question.keeps_freed_memory or keep_freed_memory()
    if not done:
        raise OSError("The C library has no mallopt, so its allocator can't be set; use a glibc.")
