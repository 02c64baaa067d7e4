"""Conditions change how long a work takes, never its result."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import ValidationError

from tests.unit.training.training_helpers import (
    Datasets,
    Run,
    data_spec,
    events,
    load,
    prepare_texts,
    run_spec,
)
from training.errors import DataError
from training.loop import print_lines
from training.spec import Conditions, RunSpec
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.slow import slow_encoder
from training.workloads.text_classification.splits import find_splits
from training.workloads.text_classification.untokenised import Tokenizing

ROOT = Path(__file__).parents[3]
REAL = Data(train=60, validation=20, seed=1, max_length=64, vocabulary=4000)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_condition_gives_the_same_weights_on_real_reviews(
    run: Run, reviews_wheel: Path, tmp_path: Path, workers: int
) -> None:
    prepared = prepare_texts(REAL, reviews_wheel, tmp_path)
    usual = run_spec(prepared, REAL, workers=workers, epochs=2, gradient_accumulation=2)
    found = {}
    for name, conditions in (
        ("usual", Conditions()),
        ("in_loop", Conditions(tokenizing="in_loop")),
        ("step", Conditions(reporting="step")),
        ("both", Conditions(tokenizing="in_loop", reporting="step")),
        ("slow", Conditions(tokenizing="in_loop", fast_tokenizer=False)),
        ("threads", Conditions(tokenizing="in_loop", tokenizer_threads="all")),
        ("stock threads", Conditions(tokenizing="in_loop", tokenizer_threads="stack")),
        ("stock", Conditions(allocator="stock", printed_lines=3)),
        ("evaluate", Conditions(scoring="evaluate")),
    ):
        out, statuses = run(usual.model_copy(update={"conditions": conditions}), prepared.path)
        assert statuses == [0] * workers
        found[name] = out
    results = {name: load(out / "result.json") for name, out in found.items()}
    assert len({result["weights_digest"] for result in results.values()}) == 1
    assert len({tuple(e["validation_loss"] for e in result["epochs"]) for result in results.values()}) == 1
    assert all(load(out / "rank-0.json")["phases"]["data"] > 0 for out in found.values())

    steps = usual.work.steps_per_epoch * 2
    for name, every in (("usual", False), ("step", True), ("both", True)):
        told = [event for event in events(found[name]) if event["event"] in ("step", "progress")]
        if every:
            assert [event["event"] for event in told] == ["step", "progress"] * steps
            assert [event["done"] for event in told[1::2]] == pytest.approx(
                [(step + 1) / steps for step in range(steps)]
            )
        else:
            assert len(told) < steps and {event["event"] for event in told} == {"step"}
        kept = (found[name] / "steps.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(kept) == steps


@pytest.mark.parametrize("wanted", [True, False])
def test_torch_is_asked_for_deterministic_algorithms_only_if_wanted(datasets: Datasets, wanted: bool) -> None:
    specification = run_spec(datasets(data_spec()), data_spec())
    asked = specification.model_copy(update={"conditions": Conditions(deterministic=wanted)})
    code = (
        "import sys, torch; from training.job import set_arithmetic; from training.spec import RunSpec; "
        "set_arithmetic(RunSpec.model_validate_json(sys.argv[1])); "
        "print(torch.are_deterministic_algorithms_enabled())"
    )
    command = [sys.executable, "-c", code, asked.model_dump_json()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(wanted)


def test_determineds_master_is_told_at_every_step(
    run: Run, datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off a cluster its Core API sends nothing, so the test looks at the calls to it."""
    from determined.core._train import DummyTrainContext

    from training.launchers.determined import DeterminedSession
    from training.rank import run_rank

    prepared = datasets(data_spec())
    usual = run_spec(prepared, data_spec())
    every_step = usual.model_copy(update={"conditions": Conditions(reporting="step")})
    told = tmp_path / "told"

    def note(_: object, **__: object) -> None:
        with told.open("a", encoding="ascii") as file:
            file.write("m")

    def note_progress(_: object, progress: float) -> None:
        with told.open("a", encoding="ascii") as file:
            file.write(f" {progress:.1f} ")

    def one_rank(file: Path, data: Path, out: Path) -> None:
        sys.exit(run_rank(file, data, out, DeterminedSession))

    monkeypatch.setattr(DummyTrainContext, "report_training_metrics", note)
    monkeypatch.setattr(DummyTrainContext, "report_progress", note_progress)
    digests = [load(run(usual, prepared.path)[0] / "result.json")["weights_digest"]]
    for spec, expected in ((every_step, "m 0.2 m 0.4 m 0.6 m 0.8 m 1.0 "), (usual, "m")):
        told.unlink(missing_ok=True)
        file, out = tmp_path / "spec.json", tmp_path / spec.run_id
        file.write_text(spec.model_dump_json(), encoding="utf-8")
        process = multiprocessing.get_context("fork").Process(
            target=one_rank, args=(file, prepared.path, out)
        )
        process.start()
        process.join(90)
        assert process.exitcode == 0
        assert told.read_text(encoding="ascii") == expected
        digests.append(load(out / "result.json")["weights_digest"])
    assert len(set(digests)) == 1


@pytest.mark.parametrize(
    ("how", "threads"),
    [
        (Tokenizing(), "false"),
        (Tokenizing(threads="all"), "true"),
        (Tokenizing(threads="stack"), "as it was"),
        (Tokenizing(fast=False), "false"),
    ],
    ids=["fast", "all threads", "stock threads", "slow"],
)
def test_texts_become_the_same_ids_in_every_way(
    reviews_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Tokenizing, threads: str
) -> None:
    import torch

    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "as it was")
    prepared = prepare_texts(REAL, reviews_wheel, tmp_path)
    before = find_splits(prepared.path, prepared.digest)
    in_loop = find_splits(prepared.path, prepared.digest, in_loop=how)
    assert os.environ["TOKENIZERS_PARALLELISM"] == threads
    assert in_loop["train"].untokenised is not None and before["train"].untokenised is None
    for name, split in before.items():
        other = in_loop[name]
        chosen = torch.randperm(len(split)).numpy()
        ours, theirs = split.tokens(chosen), other.tokens(chosen)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[each], theirs[each]) for each in ours)
        assert np.array_equal(split.labels, other.labels)
    found = in_loop["train"].untokenised.tokens(np.array([3]))
    ids, mask = found["input_ids"], found["attention_mask"]
    assert (ids.shape, mask.shape, str(ids.dtype), str(mask.dtype)) == ((1, 64), (1, 64), "int32", "int8")


def test_another_tokenizer_than_berts_has_no_slow_one(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    file = tmp_path / "tokenizer.json"
    Tokenizer(models.BPE()).save(str(file))
    with pytest.raises(DataError, match=r"takes BERT's tokenizer, and .* is another one \(BPE, None, None\)"):
        slow_encoder(file)


@pytest.mark.parametrize("conditions", [{"fast_tokenizer": False}, {"tokenizer_threads": "stack"}])
def test_settings_of_the_tokenizer_are_refused_where_it_does_not_run(
    datasets: Datasets, conditions: dict[str, Any]
) -> None:
    spec = run_spec(datasets(data_spec()), data_spec()).model_dump()
    with pytest.raises(ValidationError, match=r"is of tokenizing: in_loop, and this is tokenizing: before"):
        RunSpec.model_validate(spec | {"conditions": conditions})
    both = {"tokenizing": "in_loop", "fast_tokenizer": False, "tokenizer_threads": "all"}
    with pytest.raises(ValidationError, match="the slow one has no threads"):
        RunSpec.model_validate(spec | {"conditions": both})


def test_so_many_lines_are_printed_in_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(2, 1, 7)
    assert capsys.readouterr().out.splitlines() == [
        "epoch 1, step 7: line 1 of 2",
        "epoch 1, step 7: line 2 of 2",
    ]
    print_lines(0, 1, 8)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("allocator", "keeps"), [("tuned", True), ("stock", False)])
def test_the_allocator_is_left_alone_on_request(
    run: Run, datasets: Datasets, allocator: Literal["tuned", "stock"], keeps: bool
) -> None:
    prepared = datasets(data_spec())
    spec = run_spec(prepared, data_spec()).model_copy(update={"conditions": Conditions(allocator=allocator)})
    out, statuses = run(spec, prepared.path)
    assert statuses == [0] and load(out / "rank-0.json")["keeps_freed_memory"] is keeps


def test_a_data_set_without_texts_loads_as_before_and_says_what_it_lacks(
    datasets: Datasets, tmp_path: Path
) -> None:
    prepared = datasets(data_spec())
    old = shutil.copytree(prepared.path, tmp_path / "old")
    about = load(old / "dataset.json")
    for name in ("train.texts.arrow", "validation.texts.arrow"):
        (old / name).unlink()
        del about["files"][name]
    (old / "dataset.json").write_text(json.dumps(about), encoding="utf-8")
    assert len(find_splits(old, prepared.digest)["train"]) == 37
    with pytest.raises(DataError, match=r"has no texts \(train.texts.arrow, .*prepare it again"):
        find_splits(old, prepared.digest, in_loop=Tokenizing())


def test_damaged_texts_are_noticed_where_they_are_used(datasets: Datasets, tmp_path: Path) -> None:
    prepared = datasets(data_spec())
    copy = shutil.copytree(prepared.path, tmp_path / "copy")
    with (copy / "train.texts.arrow").open("ab") as file:
        file.write(b"x")
    assert len(find_splits(copy, prepared.digest)["train"]) == 37
    with pytest.raises(DataError, match=r"damaged \(train.texts.arrow\)"):
        find_splits(copy, prepared.digest, in_loop=Tokenizing())
