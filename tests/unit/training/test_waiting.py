"""What a step reads back from its device, and so would wait for on a GPU: of the loop's own, nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.benchmarks.engine import Alone
from tests.unit.training.training_helpers import TINY, Datasets, run_on, run_spec
from training.data.prepare import Place, prepare
from training.evaluation import evaluate
from training.loop import take_step
from training.metrics.phases import Phases
from training.registry import register
from training.spec import Conditions, DataSpec, RunSpec
from training.state import Training, set_up
from training.workload import Batch, open_workload
from training.workloads.text_classification.settings import Data

POINTS = Path(__file__).parent / "workloads" / "points"
READING = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal")
SENDING = ("lift_fresh",)  # a tensor made of Python's numbers: not from pinned memory, so it is waited for


class Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what needs a tensor's numbers on the host, or where a mask is true; and what sends numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = [
            each
            for each in (args[1] if name == "index" else ())
            if each is not None and each.dtype == torch.bool
        ]
        self.count += name in (*READING, *SENDING) or bool(masks)
        return func(*args, **(kwargs or {}))


def waits_of(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> int:
    """How often a call waits, for numbers (`tolist` is no operation of torch's) or for shapes."""
    usual, waits = torch.Tensor.tolist, Waits()

    def tolist(self: torch.Tensor) -> Any:
        waits.count += 1
        return usual(self)

    with monkeypatch.context() as patched, waits:
        patched.setattr(torch.Tensor, "tolist", tolist)
        what()
    return waits.count


def training_of(spec: RunSpec, data: Path, device: torch.device | None = None) -> Training:
    phases = Phases()
    phases.begin("other")
    return set_up(open_workload(spec.work, data, Conditions(), data), Alone(device=device), phases)


def ready(training: Training, split: str, chosen: torch.Tensor) -> Batch:
    return training.workload.ready(training.workload.batch(split, chosen, 1))


def waits_of_a_step(monkeypatch: pytest.MonkeyPatch, training: Training) -> int:
    """In its second step, of two parts; making a batch ready is the host's work, and done before."""
    chosen = torch.arange(training.work.global_batch)
    parts = [ready(training, "train", part) for part in chosen.chunk(2)]
    with monkeypatch.context() as patched:
        patched.setattr(training.workload, "ready", lambda batch: batch)
        take_step(training, chosen, iter(parts))
        return waits_of(monkeypatch, lambda: take_step(training, chosen, iter(parts)))


def waits_of_an_evaluation(monkeypatch: pytest.MonkeyPatch, training: Training, batches: int) -> int:
    chosen = torch.arange(training.work.data.validation).chunk(batches)
    made = [ready(training, "validation", part) for part in chosen]
    assert len(made) == batches

    def feed(_: Any) -> Iterator[Batch]:
        yield from made

    conditions = Conditions(evaluation_batch=len(chosen[0]))
    with monkeypatch.context() as patched:
        patched.setattr(training.workload, "conditions", conditions)
        patched.setattr(training.workload, "ready", lambda batch: batch)
        patched.setattr(training, "feed", feed)
        return waits_of(monkeypatch, lambda: evaluate(training, "validation", 1, keep=False))


def test_the_loop_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = register(POINTS)
    data = {"train": 60, "validation": 24, "seed": 4}
    asked = DataSpec.model_validate({"workload": points.name, "workload_digest": points.digest, "data": data})
    prepared = prepare(asked, Place(), tmp_path)
    for changes in (
        {},
        {"clip_gradients": 1.0, "dropout_draws": "16_bit"},
        {"optimiser": "sgd", "precision": "bf16"},
    ):
        settings = {"batch_per_worker": 8, "gradient_accumulation": 2} | changes
        training = training_of(run_on(asked, prepared, **settings), prepared.path)
        assert waits_of_a_step(monkeypatch, training) == 0
        # The sums are read once, however many batches there are.
        found = {number: waits_of_an_evaluation(monkeypatch, training, number) for number in (1, 4)}
        assert found == {1: 1, 4: 1}


@pytest.mark.parametrize(
    ("changes", "each"),
    [
        ({}, 0),
        ({"padding": "longest", "grouping": "length", "dropout_draws": "16_bit"}, 0),
        ({"padding": "none", "model": TINY | {"last_layer": "first_token"}}, 0),
        ({"model": TINY | {"architecture": "distilbert"}}, 1),  # transformers': whether there is any padding
    ],
)
def test_how_often_an_encoder_waits_in_each_batch(
    datasets: Datasets, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], each: int
) -> None:
    data = Data(train=40, validation=12, seed=1, max_length=32, vocabulary=300)
    settings = {"model": TINY, "gradient_accumulation": 2} | changes
    training = training_of(run_spec(datasets(data), data, **settings), datasets(data).path)
    assert waits_of_a_step(monkeypatch, training) == 2 * each
    assert waits_of_an_evaluation(monkeypatch, training, 3) == 1 + 3 * each
