"""What the tests of the training job share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from training.data.prepare import Place, Prepared, prepare
from training.spec import DataSpec, RunSpec
from training.workloads.text_classification.settings import Data

SENTENCES = 80  # made up by the tests
TINY = {"layers": 1, "hidden": 8, "heads": 2, "intermediate": 8}

Datasets = Callable[[Data], Prepared]
Ranks = Callable[[int, Callable[..., Any], tuple[Any, ...]], list[int | None]]
Run = Callable[..., tuple[Path, list[int | None]]]


def data_spec(train: int = 37, validation: int = 11) -> Data:
    """Data settings small enough for the made-up sentences."""
    return Data(train=train, validation=validation, seed=1, max_length=16, vocabulary=300)


def prepare_texts(data: Data, reviews: Path | None, out: Path, files: Path = Path()) -> Prepared:
    """Prepare texts for text classification."""
    return prepare(DataSpec(data=data), Place(files, reviews), out)


def run_on(asked: DataSpec, prepared: Prepared, **work: Any) -> RunSpec:
    """A short run on the data set that was prepared as `asked`."""
    short = {"workers": 1, "epochs": 1, "seed": 3, "learning_rate": 1e-2, "warmup_steps": 2}
    settings = short | {"data_digest": prepared.digest}
    return RunSpec.model_validate({"stack": "test", "work": asked.model_dump() | settings | work})


def run_spec(prepared: Prepared, data: Data, **work: Any) -> RunSpec:
    """A run of a tiny model on a prepared data set of texts."""
    settings = {"batch_per_worker": 8, "learning_rate": 1e-3, "model": TINY}
    return run_on(DataSpec(data=data), prepared, **settings | work)


def load(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def events(out: Path) -> list[dict[str, Any]]:
    """The events that a run reported."""
    return [json.loads(line) for line in (out / "progress.jsonl").read_text(encoding="utf-8").splitlines()]


def as_rank(environment: Mapping[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Call `function` as the rank of this environment; its value is the process's exit code."""
    os.environ |= environment
    sys.exit(function(*arguments))


def driver_that_ends(done: list[Any]) -> Any:
    """A stand-in for the JVM of Spark's driver: asked to exit, it notes the code and is gone, unanswered."""
    from py4j.protocol import Py4JNetworkError  # not every environment of the tests has it

    def leave(code: int) -> None:
        done.append(f"ended with {code}")
        raise Py4JNetworkError("Answer from Java side is empty")

    system = SimpleNamespace(exit=leave)
    return SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
