"""What every workload must do. Each check is independent; the last ones share their runs."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from pyarrow import parquet
from pydantic import ValidationError

from tests.conformance.lines import difference
from tests.conformance.workbench import LITTLE, Workbench, checkpoints_of, result
from training.evaluation import PREDICTIONS
from training.export import export
from training.trained import read_model
from training.util.digest import file_digest
from training.weights import weights_digest
from training.workload import Batch, Workload

TOLERANCE = 1e-4  # relative: sums of floats depend on their order


def broken(promise: str, line: str) -> NoReturn:
    """Fail with one sentence."""
    pytest.fail(f"{promise} ({line})", pytrace=False)


@contextmanager
def as_rank(rank: int, seed: int) -> Iterator[None]:
    """As in the process of another rank, whose generators are elsewhere."""
    names = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    before = {name: os.environ.get(name) for name in names}
    os.environ |= names
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def on_rank(rank: int, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, made by that rank."""

    def made() -> Any:
        with as_rank(rank, 100 + rank):
            return call()

    return made


def rows(batch: Batch, chosen: list[int]) -> Batch:
    """Some samples of a batch."""
    return {name: tensor[chosen] for name, tensor in batch.items()}


def equal(one: Batch, two: Batch) -> bool:
    """Whether two batches are the same to the last bit."""
    return one.keys() == two.keys() and all(
        one[name].dtype == two[name].dtype and torch.equal(one[name], two[name]) for name in one
    )


@pytest.fixture(scope="module")
def workload(workbench: Workbench) -> Workload:
    """The workload, opened."""
    return workbench.open()


@pytest.fixture(scope="module")
def model(workbench: Workbench, workload: Workload) -> torch.nn.Module:
    """Its network as it is evaluated."""
    return workbench.model(workload)


@pytest.fixture(scope="module")
def whole(workbench: Workbench) -> dict[int, Path]:
    """Runs on one rank and on two, never interrupted."""
    return {ranks: workbench.run(f"whole-{ranks}", workbench.specification(ranks)) for ranks in (1, 2)}


def test_preparing_again_gives_the_same_bytes(workbench: Workbench) -> None:
    again = workbench.prepare("again")
    if again.digest == workbench.prepared.digest:
        return
    one, two = workbench.prepared.path, again.path
    names = [path.relative_to(one) for path in sorted(one.rglob("*.*")) if path.name != "dataset.json"]
    differ = [str(name) for name in names if file_digest(one / name) != file_digest(two / name)]
    line = difference(
        lambda: workbench.prepare("traced-1"), lambda: workbench.prepare("traced-2"), workbench.code
    )
    broken(f"Preparing the same data again gives other files: {', '.join(differ)}", line or "an unknown line")


def test_a_batch_is_the_same_on_every_rank_and_each_time(workbench: Workbench, workload: Workload) -> None:
    chosen = torch.tensor([5, 2, 7])
    for split in ("train", "validation"):
        for rank in (0, 1):

            def batch(split: str = split) -> Batch:
                return workload.batch(split, chosen, 1)

            line = difference(on_rank(0, batch), on_rank(rank, batch), workbench.code)
            if line:
                which = "depends on the rank" if rank else "draws at random"
                fault = f"A batch of the {split} split {which}: derive chance from seed, epoch and sample"
                broken(fault, line)


def test_a_sample_does_not_depend_on_its_batch(workbench: Workbench, workload: Workload) -> None:
    for split, size in workbench.asked.data.splits.items():
        for epoch in (1, 2):
            together = workload.batch(split, torch.arange(8), epoch)
            assert {len(tensor) for tensor in together.values()} == {8}, "the first dimension counts samples"
            opened_later = workbench.open()
            for number in (3, 6):
                alone = opened_later.batch(split, torch.tensor([number]), epoch)
                assert equal(alone, rows(together, [number])), (
                    f"sample {number} of {split} is another in a batch of its own"
                )
            last = workload.batch(split, torch.tensor([0, size - 1]), epoch)
            assert equal(rows(last, [0]), rows(together, [0]))


def test_scores_add_up(workbench: Workbench, workload: Workload, model: torch.nn.Module) -> None:
    batch = workload.batch("validation", torch.arange(8), 1)

    def score(of: Batch) -> torch.Tensor:
        with torch.inference_mode():
            return workload.score(workload.predict(model, of)).double()

    line = difference(lambda: score(batch), lambda: score(batch), workbench.code)
    if line:
        broken("The score of the same batch is another the second time", line)
    found = score(batch)
    assert found.shape == (len(workload.SUMS),), f"score gives one sum for each of {workload.SUMS}"
    parts = sum(score(rows(batch, part)) for part in ([0], [1, 2, 3, 4], [5, 6, 7]))
    assert isinstance(parts, torch.Tensor)
    for name, all_at_once, added in zip(workload.SUMS, found.tolist(), parts.tolist(), strict=True):
        if not math.isclose(all_at_once, added, rel_tol=TOLERANCE, abs_tol=1e-6):
            where = difference(lambda: score(batch), lambda: score(rows(batch, [0])), workbench.code)
            broken(
                f"The sum {name} can't be added up: {all_at_once:.6g} for eight samples at once, "
                f"{added:.6g} in three parts",
                f"score, called from {where}",
            )


def test_the_loss_is_the_mean_over_samples(
    workbench: Workbench, workload: Workload, model: torch.nn.Module
) -> None:
    batch = workload.batch("train", torch.arange(8), 1)

    def loss(of: Batch) -> torch.Tensor:
        with torch.inference_mode():
            return workload.loss(model, of)

    line = difference(lambda: loss(batch), lambda: loss(batch), workbench.code)
    if line:
        broken("The loss of the same batch is another the second time, without dropout", line)
    assert loss(batch).shape == (), "the loss is a scalar"
    parts = [list(part) for part in ([0], [1, 2, 3, 4], [5, 6, 7])]
    mean = sum(loss(rows(batch, part)).item() * len(part) for part in parts) / 8
    assert loss(batch).item() == pytest.approx(mean, rel=1e-3), (
        "the loss of a batch is not the mean of its samples' losses, so accumulation would change it"
    )


def test_metrics_are_numbers_and_the_loss_is_one_of_them(workload: Workload, model: torch.nn.Module) -> None:
    size = workload.work.data.validation
    with torch.inference_mode():
        predictions = workload.predict(model, workload.batch("validation", torch.arange(size), 1))
        sums = workload.score(predictions).double().tolist()
    assert {len(tensor) for tensor in predictions.values()} == {size}, "the first dimension counts samples"
    named = dict(zip(workload.SUMS, sums, strict=True))
    metrics = workload.metrics(named, size)
    assert "loss" in metrics and "count" not in metrics
    assert workload.work.data.metric in metrics, "the metric by which people judge the model"
    assert all(isinstance(value, int | float) for value in metrics.values())
    assert workload.metrics(dict(named), size) == metrics


def test_the_seed_alone_decides_the_first_weights(workbench: Workbench, workload: Workload) -> None:
    digests = []
    for rank in (0, 1):
        with as_rank(rank, rank):
            digests.append(weights_digest(workload.model().state_dict()))
    if digests[0] == digests[1]:
        return

    def state() -> Any:
        return workload.model().state_dict()

    line = difference(on_rank(0, state), on_rank(1, state), workbench.code)
    broken("The first weights differ from rank to rank", line or "an unknown line")


def test_ranks_train_evaluate_and_agree(workbench: Workbench, whole: dict[int, Path]) -> None:
    for ranks, out in whole.items():
        ended = result(out)
        assert ended["status"] == "ok"
        assert ended["validation_count"] == workbench.asked.data.validation
        assert ended["epochs"][-1]["test_count"] == workbench.asked.data.test, "the test split is looked at"
        assert not any(name.startswith("test_") for name in ended["epochs"][0]), "but only at the end"
        assert len(list(out.glob("rank-*.json"))) == ranks


def test_the_same_run_again_ends_with_the_same_weights(workbench: Workbench, whole: dict[int, Path]) -> None:
    again = workbench.run("again-2", workbench.specification(2))
    assert result(again)["weights_digest"] == result(whole[2])["weights_digest"]


def test_batches_of_a_data_loader_are_the_same(workbench: Workbench, whole: dict[int, Path]) -> None:
    fed = workbench.run("fed", workbench.specification(2, loader_workers=1))
    assert result(fed)["weights_digest"] == result(whole[2])["weights_digest"], (
        "with a DataLoader the run ends with other weights: a batch depends on the process that makes it"
    )


@pytest.fixture(scope="module")
def kept(workbench: Workbench) -> Path:
    """A run on two ranks that keeps its model and all predictions, with all metrics."""
    names = list(workbench.asked.data.further_metrics or ())
    return workbench.run("kept", workbench.specification(2, predictions=True, metrics=names, save="last"))


def test_ranks_evaluate_together_as_one_does_alone(
    workbench: Workbench, workload: Workload, kept: Path
) -> None:
    trained = read_model(kept)
    assert trained is not None
    model = workbench.model(workload)
    model.load_state_dict(trained[0])
    for split in ("validation", "test"):
        size = workbench.asked.data.splits[split]
        sums = torch.zeros(len(workload.SUMS), dtype=torch.float64)
        with torch.inference_mode():
            for chosen in torch.split(torch.arange(size), LITTLE["batch_per_worker"]):
                sums += workload.score(workload.predict(model, workload.batch(split, chosen, 2)))
        alone = workload.metrics(dict(zip(workload.SUMS, sums.tolist(), strict=True)), size)
        together = {name: result(kept)["epochs"][-1][f"{split}_{name}"] for name in alone}
        assert together == pytest.approx(alone, rel=TOLERANCE), f"over {split}, ranks together say otherwise"


def test_what_is_asked_of_predictions_changes_nothing(
    workbench: Workbench, whole: dict[int, Path], kept: Path
) -> None:
    names = list(workbench.asked.data.further_metrics or ())
    assert result(kept)["weights_digest"] == result(whole[2])["weights_digest"]
    for split in ("validation", "test"):
        table = parquet.read_table(kept / PREDICTIONS.format(split=split))
        assert table.column("sample").to_pylist() == list(range(workbench.asked.data.splits[split]))
        assert table.num_columns > 1, "predict says something of each sample"
        last = result(kept)["epochs"][-1]
        assert {f"{split}_{name}" for name in names} <= set(last), "all further_metrics can be computed"


def test_another_library_counts_the_same_or_is_refused(workbench: Workbench, whole: dict[int, Path]) -> None:
    if not workbench.asked.data.has_classes:
        with pytest.raises(ValidationError, match="don't have one class each"):
            workbench.specification(2, scoring="evaluate")
        return
    scored = workbench.run("scored", workbench.specification(2, scoring="evaluate"))
    assert result(scored)["weights_digest"] == result(whole[2])["weights_digest"]
    assert _without_seconds(result(scored)) == _without_seconds(result(whole[2])), (
        "the classes that are equal are not as many as its sum of correct samples"
    )


@pytest.mark.parametrize(("ranks", "missing"), [(1, 2), (2, 1), (2, 2)])
def test_a_run_that_resumes_ends_with_the_same_weights(
    workbench: Workbench, whole: dict[int, Path], ranks: int, missing: int
) -> None:
    kept = checkpoints_of(whole[ranks])[:-missing]
    assert kept, "there is a checkpoint to resume from"
    resumed = workbench.run(f"resumed-{ranks}-{missing}", workbench.specification(ranks), kept)
    assert "resume" in (resumed / "progress.jsonl").read_text(encoding="utf-8")
    assert result(resumed)["weights_digest"] == result(whole[ranks])["weights_digest"]
    assert _without_seconds(result(resumed)) == _without_seconds(result(whole[ranks]))


def test_the_trained_model_comes_home(workbench: Workbench, whole: dict[int, Path], tmp_path: Path) -> None:
    home = export(workbench.specification(2), workbench.prepared.path, whole[2], tmp_path / "model")
    assert [path for path in home.iterdir() if path.stat().st_size]


def _without_seconds(ended: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in epoch.items() if name != "seconds"} for epoch in ended["epochs"]]
