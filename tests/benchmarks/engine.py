"""Training with this project's loop, outside of any run: the work, its steps, and what came of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from training.compiled import compiling
from training.data.prepared import DESCRIPTION
from training.errors import DataError
from training.job import set_arithmetic
from training.loop import train_epoch
from training.metrics.figures import Figures
from training.metrics.phases import SAMPLE_EVERY, Phases, clock_for
from training.session import RankStatus
from training.spec import Conditions, RunSpec, Work
from training.state import Training, set_up
from training.torchrun import TorchrunSession
from training.util.process import keep_freed_memory
from training.workload import Workload, open_workload, to_device

USUAL: Final = {
    "workers": 1,
    "seed": 1,
    "batch_per_worker": 32,
    "learning_rate": 5e-4,
    "warmup_steps": 20,
    # As Trainer does by default, so that both compute the same.
    "clip_gradients": 1.0,
    "weight_decay": 0.0,
}
"""Settings of the work in every part: with them an encoder from scratch learns within minutes."""


class ProcessorTime(NamedTuple):
    """Seconds of processor time, of all cores together."""

    training: float = 0.0  # of the thread that trains
    others: float = 0.0  # of the process's other threads, such as gloo's


class Alone(TorchrunSession):
    """A rank outside of any run, which keeps figures or drops them and is never told to stop."""

    def __init__(
        self,
        figures: Figures | None = None,
        device: torch.device | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.rank, self.world_size, self.local_rank = rank, world_size, rank
        self.device = device or torch.device("cpu")
        self._figures = figures
        self.compiling_s = 0.0  # seconds that torch.compile took in its steps
        self.phases: dict[str, float] = {}  # seconds by phase, of the steps that count
        self.processor = ProcessorTime()  # of the same steps

    def should_stop(self) -> bool:
        """Never."""
        return False


def described(data: Path) -> dict[str, Any]:
    """The description of a prepared data set.

    Raises:
        DataError: there is none.
    """
    try:
        found: dict[str, Any] = json.loads((data / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"There is no prepared data set in {data} ({error}); name its own folder, which has "
            f"{DESCRIPTION}, or leave --data out."
        ) from error
    return found


def work_on(data: Path, steps: int, **settings: Any) -> Work:
    """Training on the first samples of a prepared data set, as many as `steps` an epoch take.

    Args:
        data: the data set's own folder.
        steps: in each epoch.
        settings: of the work, beside those in `USUAL`; an epoch unless they say otherwise.

    Raises:
        DataError: there is no data set, or it has too few samples.
        ValidationError: the work can't have these settings.
    """
    about = described(data)
    chosen = USUAL | {"epochs": 1} | settings
    samples = steps * chosen["batch_per_worker"] * chosen["workers"]
    if samples > about["spec"]["train"]:
        raise DataError(
            f"{steps} steps take {samples} samples to train, and the data set in {data} has "
            f"{about['spec']['train']}; use fewer steps (--steps), or a larger data set (--data)."
        )
    content = {"data": about["spec"] | {"train": samples}, "data_digest": about["digest"]}
    return Work.model_validate(content | chosen)


def compute_as_a_rank(work: Work) -> None:
    """Have this process compute as a rank of a run does, from now on; called once, before anything is."""
    set_arithmetic(RunSpec(stack="benchmark", work=work))
    keep_freed_memory()


def opened(work: Work, data: Path, conditions: Conditions | None = None) -> Workload:
    """The workload of a benchmark's work; without `conditions` it has the usual ones."""
    return open_workload(work, data, conditions or Conditions(), data)


def by_the_engine(
    workload: Workload, session: Alone, ready: Callable[[], object] = lambda: None, skipped: int = 0
) -> Training:
    """Train all epochs of the work, without evaluation; `step_seconds` has what each step took.

    The session's `compiling_s` has what compiling took of that, as a rule in the first step, and its `phases`
    where the time went after the steps that are skipped; `processor` has what the processor worked for them.

    Args:
        workload: what to train.
        session: this rank's; the ranks have met.
        ready: called before the first step.
        skipped: the first steps whose phases and processor time don't count.
    """
    kind = session.device.type
    phases = Phases(clock_for(kind), SAMPLE_EVERY[kind])
    phases.begin("other")
    with compiling(workload.conditions, phases) as compilation:
        training = set_up(workload, session, phases, compilation)
        # Until the first step that counts begins, and the last one ends.
        spent: list[dict[str, float]] = []
        worked: list[tuple[float, float]] = []  # by this thread, and by all

        def note() -> None:
            if training.steps in (skipped, workload.work.steps):
                phases.settle()
                spent.append(phases.seconds())
                worked.append((time.thread_time(), time.process_time()))

        training.after_step = note
        ready()
        if not skipped:
            note()
        for epoch in range(1, workload.work.epochs + 1):
            training.end_epoch(train_epoch(training, epoch, RankStatus(), time.perf_counter()))
        training.vote.settle()
        before, whole = spent
        session.phases = {name: seconds - before.get(name, 0.0) for name, seconds in whole.items()}
        own, every = (after - earlier for earlier, after in zip(*worked, strict=True))
        session.processor = ProcessorTime(own, every - own)
        session.compiling_s = compilation.seconds if compilation else 0.0
    return training


@torch.inference_mode()
def judged(workload: Workload, model: torch.nn.Module, samples: int) -> dict[str, float]:
    """The metrics of a trained model on the first samples for validation, uncompiled: `loss`, `accuracy`."""
    model.eval()
    device = next(model.parameters()).device
    sums = torch.zeros(len(workload.SUMS), dtype=torch.float64, device=device)
    with torch.compiler.set_stance("force_eager"):
        for chosen in torch.split(torch.arange(samples), workload.work.batch_per_worker):
            batch = to_device(workload.batch("validation", chosen, workload.work.epochs), device)
            sums += workload.score(workload.predict(model, batch))
    return workload.metrics(dict(zip(workload.SUMS, sums.tolist(), strict=True)), samples)
