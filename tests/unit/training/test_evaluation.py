"""What a model is worth: further metrics, a test split that is looked at once, predictions that are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from pydantic import ValidationError
from sklearn.metrics import f1_score, roc_auc_score

from experiments.records.record import Epoch
from tests.unit.training.training_helpers import Run, events, load, run_on
from training import evaluation
from training.data.prepare import Place, Prepared, prepare
from training.errors import DataError, WorkloadError
from training.evaluation import evaluate
from training.metrics.of_predictions import of_classes, of_label_sets, of_numbers
from training.registry import Outside, register
from training.spec import Conditions, DataSpec, RunSpec
from training.workload import Batch

POINTS = Path(__file__).parent / "workloads" / "points"
DATA = {"train": 60, "validation": 23, "test": 14, "seed": 4}
WORK: dict[str, Any] = {"epochs": 2, "batch_per_worker": 5, "workers": 2, "checkpoint_every_epochs": 1}
ASKED = {"metrics": ["f1", "auroc"], "predictions": True}


@pytest.fixture(scope="module")
def points() -> Iterator[Outside]:
    yield register(POINTS)


@pytest.fixture(scope="module")
def asked(points: Outside) -> DataSpec:
    return DataSpec.model_validate({"workload": points.name, "workload_digest": points.digest, "data": DATA})


@pytest.fixture(scope="module")
def prepared(asked: DataSpec, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(asked, Place(), tmp_path_factory.mktemp("data"))


def under(spec: RunSpec, conditions: dict[str, Any]) -> RunSpec:
    return RunSpec.model_validate(spec.model_dump() | {"conditions": conditions})


def test_two_ranks_find_the_same_metrics_as_all_predictions_together(
    asked: DataSpec, prepared: Prepared, run: Run
) -> None:
    plain = run_on(asked, prepared, **WORK)
    out, statuses = run(under(plain, ASKED), prepared.path)
    assert statuses == [0, 0]
    result = load(out / "result.json")
    first, last = result["epochs"]
    assert not [name for name in first if name.startswith("test_")], "looked at once, at the end"
    assert (last["validation_count"], last["test_count"]) == (23, 14)
    for split, size in (("validation", 23), ("test", 14)):
        table = parquet.read_table(out / f"predictions-{split}.parquet")
        assert table.column("sample").to_pylist() == list(range(size))
        answers = np.array(table.column("answers").to_pylist())
        inside = np.array(table.column("inside").to_pylist())
        truth = _truth(prepared, split)
        assert inside.tolist() == truth
        assert last[f"{split}_correct"] == (answers.argmax(axis=1) == inside).sum()
        assert last[f"{split}_f1"] == pytest.approx(f1_score(inside, answers.argmax(axis=1)))
        margin = answers[:, 1] - answers[:, 0]
        assert last[f"{split}_auroc"] == pytest.approx(roc_auc_score(inside, margin))
    assert [each["test_count"] for each in events(out) if each["event"] == "test"] == [14]

    # None of it changes what is learnt, and who does not ask for it does not pay for it.
    without, statuses = run(plain, prepared.path)
    assert statuses == [0, 0]
    assert load(without / "result.json")["weights_digest"] == result["weights_digest"]
    assert not list(without.glob("*.parquet"))
    assert "validation_f1" not in load(without / "result.json")["epochs"][-1]

    # A run that was interrupted after its last checkpoint still looks at the test split.
    again, statuses = run(under(plain, ASKED), prepared.path, out)
    assert statuses == [0, 0]
    assert "resume" in [each["event"] for each in events(again)]
    resumed = load(again / "result.json")["epochs"][-1]
    assert {name: value for name, value in resumed.items() if name.startswith("test_")} == {
        name: value for name, value in last.items() if name.startswith("test_")
    }

    epoch = Epoch.model_validate(last)
    assert (epoch.metric("f1"), epoch.metric("test_f1")) == (last["validation_f1"], last["test_f1"])
    assert json.loads(epoch.model_dump_json())["test"]["count"] == 14


def _truth(prepared: Prepared, split: str) -> list[int]:
    from training.data.prepared import read_arrow

    found: list[int] = read_arrow(prepared.path / f"{split}.arrow").column("inside").to_pylist()
    return found


def test_ranks_that_each_evaluate_everything_find_the_same(
    asked: DataSpec, prepared: Prepared, run: Run
) -> None:
    plain, found = run_on(asked, prepared, **WORK), {}
    for how in ("sharded", "replicated"):
        out, statuses = run(under(plain, ASKED | {"evaluation": how}), prepared.path)
        assert statuses == [0, 0]
        kept = [parquet.read_table(out / f"predictions-{split}.parquet") for split in ("validation", "test")]
        found[how] = (load(out / "result.json"), kept)
    (ours, our_predictions), (theirs, their_predictions) = found["sharded"], found["replicated"]
    assert ours["weights_digest"] == theirs["weights_digest"]
    for mine, other in zip(ours["epochs"], theirs["epochs"], strict=True):
        figures = {name: each for name, each in mine.items() if name.startswith(("validation_", "test_"))}
        assert {name: other[name] for name in figures} == pytest.approx(figures)
    for mine, other in zip(our_predictions, their_predictions, strict=True):
        assert mine.column("inside").to_pylist() == other.column("inside").to_pylist()
        answers, others = (np.array(table.column("answers").to_pylist()) for table in (mine, other))
        assert np.allclose(answers, others)


def test_how_many_are_evaluated_at_once_changes_nothing_but_rounding(
    asked: DataSpec, prepared: Prepared, run: Run
) -> None:
    plain, found = run_on(asked, prepared, **WORK), {}
    for size in (None, 1, 7, 500):
        out, statuses = run(under(plain, ASKED | {"evaluation_batch": size}), prepared.path)
        assert statuses == [0, 0]
        kept = [parquet.read_table(out / f"predictions-{split}.parquet") for split in ("validation", "test")]
        found[size] = (load(out / "result.json"), kept)
    ours, our_predictions = found.pop(None)
    for theirs, their_predictions in found.values():
        assert ours["weights_digest"] == theirs["weights_digest"]
        for mine, other in zip(ours["epochs"], theirs["epochs"], strict=True):
            figures = {name: each for name, each in mine.items() if name.startswith(("validation_", "test_"))}
            assert {name: other[name] for name in figures} == pytest.approx(figures, rel=1e-6)
            assert mine["validation_correct"] == other["validation_correct"]
        for mine, other in zip(our_predictions, their_predictions, strict=True):
            assert mine.column("inside").to_pylist() == other.column("inside").to_pylist()
            answers, others = (np.array(table.column("answers").to_pylist()) for table in (mine, other))
            assert np.allclose(answers, others)


def test_without_evaluation_the_weights_are_the_same_and_only_the_test_split_is_judged(
    asked: DataSpec, prepared: Prepared, run: Run
) -> None:
    plain = run_on(asked, prepared, **WORK)
    found = {}
    for how in ("sharded", "none"):
        out, statuses = run(under(plain, {"evaluation": how}), prepared.path)
        assert statuses == [0, 0]
        found[how] = load(out / "result.json")
    ours, without = found["sharded"], found["none"]
    assert ours["weights_digest"] == without["weights_digest"]
    assert (ours["validation_count"], without["validation_count"]) == (DATA["validation"], None)
    assert not [name for epoch in without["epochs"] for name in epoch if name.startswith("validation_")]
    assert without["epochs"][-1]["test_count"] == DATA["test"]


@pytest.mark.parametrize(
    "asked",
    [{"metrics": ["f1"]}, {"predictions": True}, {"save": "best"}, {"scoring": "evaluate"}],
    ids=lambda each: next(iter(each)),
)
def test_what_needs_an_evaluation_is_refused_without_one(asked: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"evaluation: none has nothing for .*; leave out one or the"):
        Conditions.model_validate({"evaluation": "none", **asked})


def test_the_library_evaluate_counts_the_same_and_leaves_the_weights_and_the_home_alone(
    asked: DataSpec, prepared: Prepared, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evaluate import config

    import training.metrics.library  # noqa: F401  # once, before the ranks are forked

    home = tmp_path / "home"
    monkeypatch.setattr(config, "HF_METRICS_CACHE", home)
    plain, found = run_on(asked, prepared, **WORK), {}
    for conditions in ({"evaluation": each} for each in ("sharded", "replicated")):
        for scoring in ("direct", "evaluate"):
            out, statuses = run(under(plain, conditions | {"scoring": scoring}), prepared.path)
            assert statuses == [0, 0]
            assert not list(out.glob("evaluate*")) and not home.exists()
            found[conditions["evaluation"], scoring] = load(out / "result.json")
    assert len({result["weights_digest"] for result in found.values()}) == 1
    for how in ("sharded", "replicated"):
        direct, scored = (
            [
                {name: each for name, each in epoch.items() if name.startswith(("validation_", "test_"))}
                for epoch in found[how, scoring]["epochs"]
            ]
            for scoring in ("direct", "evaluate")
        )
        assert direct == scored  # to the last bit, the loss too
        assert 0 < direct[-1]["validation_correct"] < DATA["validation"] and "test_correct" in direct[-1]


def test_no_other_run_imports_the_library() -> None:
    code = (
        "import sys, training.rank, training.job; "
        "from training.registry import load_for; "
        "[load_for(name, None, 'workload') for name in ('text-classification', 'image-classification')]; "
        "print('evaluate' in sys.modules)"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=POINTS.parents[4], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def a_rank(run: Path, world_size: int, conditions: Conditions, sums: tuple[str, ...] = ("correct",)) -> Any:
    """Rank 1 of some in an evaluation of 11 samples, each of class 1, of which the even ones look like it."""

    def feed(requests: Iterator[tuple[str, list[int], int]]) -> Iterator[Batch]:
        for _, chosen, _ in requests:
            if conditions.scoring == "evaluate" and fed:
                # What was added before is on disk, in the run's folder.
                assert list(run.glob("evaluate-*/accuracy/default/*.arrow"))
            fed.extend(chosen)
            yield {"number": torch.tensor(chosen)}

    fed: list[int] = []
    workload = SimpleNamespace(
        SUMS=sums,
        conditions=conditions,
        run=run,
        ready=lambda batch: batch,
        predict=lambda _, batch: batch,
        score=lambda predictions: torch.full((1,), 100.0 * len(predictions["number"])),
        classes=lambda predictions: (1 - predictions["number"] % 2, torch.ones_like(predictions["number"])),
        metrics=lambda sums, samples: {"accuracy": sums["correct"] / samples},
    )
    work = SimpleNamespace(
        data=SimpleNamespace(splits={"validation": 11}), batch_per_worker=2, gradient_accumulation=1
    )
    session = SimpleNamespace(rank=1, world_size=world_size, device=torch.device("cpu"))
    return SimpleNamespace(
        session=session,
        workload=workload,
        model=torch.nn.Identity(),
        work=work,
        feed=feed,
        fed=fed,
        computing=nullcontext,
    )


@pytest.mark.parametrize(
    ("how", "ranks", "own", "correct"),
    # Whatever the sums of the workload say; the others' are 4 more.
    [("sharded", 2, [6, 7, 8, 9, 10], 3 + 4), ("replicated", 2, list(range(11)), 6)],
)
def test_a_rank_has_the_library_count_what_it_evaluates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Any, ranks: int, own: list[int], correct: int
) -> None:
    training = a_rank(tmp_path, ranks, Conditions(evaluation=how, scoring="evaluate"))
    others = torch.tensor([4.0, 6.0], dtype=torch.float64)
    monkeypatch.setattr(evaluation, "sum_over_ranks", lambda _, sums: sums + others)
    found = evaluate(training, "validation", 1, keep=False)
    assert training.fed == own
    assert found == {"validation_accuracy": correct / 11, "validation_count": 11}
    assert not list(tmp_path.iterdir())


def test_a_rank_without_samples_counts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = a_rank(tmp_path, 2, Conditions(scoring="evaluate"))
    monkeypatch.setattr(evaluation, "rank_share", lambda samples, *_: samples[:0])
    others = torch.tensor([5.0, 11.0], dtype=torch.float64)
    monkeypatch.setattr(evaluation, "sum_over_ranks", lambda _, sums: sums + others)
    found = evaluate(training, "validation", 1, keep=False)
    assert found == {"validation_accuracy": 5 / 11, "validation_count": 11} and not training.fed


def test_a_workload_without_the_sum_that_the_library_counts_is_named(tmp_path: Path) -> None:
    training = a_rank(tmp_path, 2, Conditions(scoring="evaluate"), sums=("loss",))
    with pytest.raises(WorkloadError, match=r"has no sum 'correct' in its SUMS, .*; add it, or leave that"):
        evaluate(training, "validation", 1, keep=False)


def test_the_library_is_refused_where_samples_have_no_classes(prepared: Prepared) -> None:
    texts = {"source": "files", "train_file": "a.csv", "train": 10, "validation": 5, "seed": 1}
    texts |= {"max_length": 8}
    cases: tuple[tuple[dict[str, Any], str | None], ...] = (
        ({"data": texts}, None),
        ({"data": texts | {"problem_type": "regression"}}, "text-classification"),
        (
            {"data": texts | {"problem_type": "multi_label_classification", "classes": ["a", "b"]}},
            "text-classification",
        ),
        ({"workload": "image-classification", "data": DATA | {"size": 8}}, None),
        ({"workload": "causal-lm", "data": DATA | {"block": 16}}, "causal-lm"),
        ({"workload": "unheard-of", "workload_digest": "0" * 64, "data": DATA}, None),
    )
    for about, refused in cases:
        work = {"data_digest": prepared.digest, "workers": 1, "epochs": 1, "seed": 1, "batch_per_worker": 4}
        spec = {"stack": "test", "work": about | work, "conditions": {"scoring": "evaluate"}}
        if refused is None:
            RunSpec.model_validate(spec)
            continue
        with pytest.raises(ValidationError, match=rf"{refused} don't have one class each; leave it out"):
            RunSpec.model_validate(spec)


@pytest.mark.parametrize(("asked_for", "at_once"), [(None, [2, 2, 1]), (3, [3, 2]), (1, [1] * 5), (64, [5])])
def test_so_many_are_evaluated_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_for: int | None, at_once: list[int]
) -> None:
    training = a_rank(tmp_path, 2, Conditions(evaluation_batch=asked_for))
    sizes: list[int] = []
    usual = training.workload.score

    def score(found: Batch) -> torch.Tensor:
        sizes.append(len(found["number"]))
        scored: torch.Tensor = usual(found)
        return scored

    training.workload.score = score
    others = torch.tensor([4.0, 6.0], dtype=torch.float64)
    monkeypatch.setattr(evaluation, "sum_over_ranks", lambda _, sums: sums + others)
    evaluate(training, "validation", 1, keep=False)
    assert sizes == at_once


@pytest.mark.parametrize(("how", "own"), [("sharded", [6, 7, 8, 9, 10]), ("replicated", list(range(11)))])
def test_a_rank_evaluates_its_share_or_everything(
    monkeypatch: pytest.MonkeyPatch, how: str, own: list[int]
) -> None:
    fed: list[int] = []

    def feed(requests: Iterator[tuple[str, list[int], int]]) -> Iterator[Batch]:
        for _, chosen, _ in requests:
            fed.extend(chosen)
            yield {"number": torch.tensor(chosen)}

    workload = SimpleNamespace(
        SUMS=("total",),
        conditions=Conditions(evaluation=how),  # type: ignore[arg-type]
        ready=lambda batch: batch,
        predict=lambda _, batch: batch,
        score=lambda predictions: predictions["number"].sum()[None].double(),
        metrics=lambda sums, samples: {"mean": sums["total"] / samples},
    )
    work = SimpleNamespace(
        data=SimpleNamespace(splits={"validation": 11}), batch_per_worker=4, gradient_accumulation=1
    )
    session = SimpleNamespace(rank=1, world_size=2, device=torch.device("cpu"))
    training: Any = SimpleNamespace(
        session=session,
        workload=workload,
        model=torch.nn.Identity(),
        work=work,
        feed=feed,
        computing=nullcontext,
    )
    others = torch.tensor([sum(range(6)), 6.0], dtype=torch.float64)  # of rank 0
    monkeypatch.setattr(evaluation, "sum_over_ranks", lambda _, sums: sums + others)
    found = evaluate(training, "validation", 1, keep=False)
    assert fed == own
    assert found == {"validation_mean": 5.0, "validation_count": 11}


def test_a_metric_that_a_workload_does_not_have_is_refused(asked: DataSpec, prepared: Prepared) -> None:
    plain = run_on(asked, prepared, **WORK)
    with pytest.raises(
        ValidationError, match=r"there is no f2 for these data; there are f1, f1_macro, auroc"
    ):
        under(plain, {"metrics": ["f2"]})
    digest = under(plain, {}).conditions.digest
    assert digest == under(plain, {"metrics": [], "predictions": False}).conditions.digest
    assert digest != under(plain, {"predictions": True}).conditions.digest


def test_metrics_of_more_than_two_classes_of_label_sets_and_of_numbers() -> None:
    logits = np.array([[2.0, 1, 0], [0, 3, 1], [0, 0, 1], [1, 0, 2]])
    found = of_classes(logits, np.array([0, 1, 2, 1]), ["f1_macro", "matthews", "auroc"])
    assert found["f1_macro"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    assert found["matthews"] == pytest.approx(0.7)
    assert 0.5 < found["auroc"] <= 1
    with pytest.raises(DataError, match=r"no sample has class 2 \(counted from 0\)"):
        of_classes(logits, np.array([0, 1, 1, 1]), ["auroc"])

    sets = of_label_sets(
        np.array([[1.0, -1], [1, 1], [-1, -1]]), np.array([[1, 0], [1, 0], [0, 1]]), ["f1_micro", "f1_macro"]
    )
    assert sets == pytest.approx({"f1_micro": 2 * 2 / (3 + 3), "f1_macro": 0.5})
    with pytest.raises(DataError, match="all samples have class 0"):
        of_label_sets(np.ones((2, 1)), np.ones((2, 1)), ["auroc"])

    numbers = of_numbers(np.array([1.0, 2, 4]), np.array([1.0, 2, 3]), ["pearson", "spearman", "r2"])
    assert numbers == pytest.approx({"pearson": 0.98198, "spearman": 1.0, "r2": 0.5}, abs=1e-4)
