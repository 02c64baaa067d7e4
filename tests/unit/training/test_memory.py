"""A batch that does not fit into memory: real allocations, refused by a limit on the address space."""

from __future__ import annotations

import ctypes
import re
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from tests.unit.training.training_helpers import Datasets, Ranks, load, run_on, run_spec
from training.data.prepare import Prepared
from training.memory import explain_shortage, fitting_batch
from training.rank import run_rank
from training.spec import DataSpec
from training.workloads.text_classification.settings import Data

ROOM = 500 << 20  # bytes beyond what the process has: less than a step of 64 x 512 tokens needs
WIDE = {"layers": 2, "hidden": 128, "heads": 2, "intermediate": 512}


M_MMAP_THRESHOLD = -3  # mallopt(3)


def with_little_memory(spec: Path, data: Path, out: Path) -> int:
    """Be a rank in a process that may not grow by more than `ROOM`.

    The limit is on addresses, and a heap that was once large does not return its own. So unlike ranks
    elsewhere, this one does not keep freed memory in the heap, but maps every tensor by itself.
    """
    assert ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 64 << 10) == 1
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with mock.patch("training.job.keep_freed_memory", return_value=False):
        return run_rank(spec, data, out)


def test_the_batch_that_fits_is_named_and_does_fit(ranks: Ranks, datasets: Datasets, tmp_path: Path) -> None:
    data = Data(train=64, validation=8, seed=1, max_length=512, vocabulary=300)
    prepared = datasets(data)

    def attempt(name: str, **work: int) -> tuple[int | None, Path]:
        spec = run_spec(prepared, data, model=WIDE, **work)
        file, out = tmp_path / f"{name}.json", tmp_path / name
        file.write_text(spec.model_dump_json(), encoding="utf-8")
        (status,) = ranks(1, with_little_memory, (file, prepared.path, out))
        return status, out

    status, out = attempt("too-large", batch_per_worker=64)
    assert status == 1
    told = load(out / "error-0.json")
    assert told["type"] == "ShortOfMemoryError"
    found = re.fullmatch(
        r"Not enough memory for 64 samples of 512 tokens at once \(.+\); "
        r"(\d+) fit here: use batch_per_worker (\d+), or keep the batch and use gradient_accumulation "
        r"(\d+); .*",
        told["message"],
    )
    assert found, told["message"]
    fits, again, parts = map(int, found.groups())
    assert fits == again < 64 and parts == 64 // fits
    assert attempt("fitting", batch_per_worker=fits)[0] == 0
    assert attempt("accumulated", batch_per_worker=64, gradient_accumulation=parts)[0] == 0


@pytest.mark.parametrize(
    ("workload", "data", "shorter"),
    [
        ("text-classification", {"max_length": 16}, "use a shorter max_length or a smaller model"),
        ("causal-lm", {"block": 16}, "use a shorter block or a smaller model"),
        ("image-classification", {"size": 33}, "use a smaller model"),
    ],
)
def test_advice_names_the_settings_of_the_workload(
    workload: str, data: dict[str, int], shorter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = DataSpec.model_validate(
        {"workload": workload, "data": {"train": 64, "validation": 8, "seed": 1} | data}
    )
    work = run_on(asked, Prepared("0" * 64, Path(), created=False), batch_per_worker=8).work
    monkeypatch.setattr("training.memory.fitting_batch", lambda *_: None)
    training: Any = SimpleNamespace(work=work)
    told = str(explain_shortage(training, RuntimeError("can't allocate memory")))
    assert told.endswith(f"not even one sample at a time fits: {shorter}.")


def test_where_batches_are_grouped_the_longest_samples_must_fit() -> None:
    tried: list[list[int]] = []

    def batch(_: str, chosen: torch.Tensor, epoch: int) -> None:  # noqa: ARG001  # as it is called
        tried.append(chosen.tolist())
        raise MemoryError

    network = torch.nn.Linear(1, 1)
    session = SimpleNamespace(device=torch.device("cpu"))
    work = SimpleNamespace(data=SimpleNamespace(train=5))
    training: Any = SimpleNamespace(
        work=work,
        model=network,
        session=session,
        workload=None,
        optimiser=torch.optim.SGD(network.parameters()),
        batch=batch,
    )
    for training.lengths, expected in (
        (None, [0, 1, 2, 3, 4, 0]),
        (torch.tensor([3, 9, 1, 7, 5]), [1, 3, 4, 0, 2, 1]),
    ):
        with pytest.raises(MemoryError):
            fitting_batch(training, 6)
        assert tried.pop() == expected


def test_a_model_that_never_fits_is_said(ranks: Ranks, datasets: Datasets, tmp_path: Path) -> None:
    data = Data(train=64, validation=8, seed=1, max_length=512, vocabulary=300)
    prepared = datasets(data)
    huge = {"layers": 8, "hidden": 768, "heads": 12, "intermediate": 3072}
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(run_spec(prepared, data, model=huge).model_dump_json(), encoding="utf-8")
    (status,) = ranks(1, with_little_memory, (file, prepared.path, out))
    assert status == 1
    assert "not even one sample at a time fits" in load(out / "error-0.json")["message"]
