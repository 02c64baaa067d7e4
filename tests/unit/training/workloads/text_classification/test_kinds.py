"""Several labels, pairs of texts, numbers, a test split of its own, and encoders of other architectures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.unit.training.training_helpers import TINY, Run, load, prepare_texts, run_spec
from training.data.prepare import Prepared
from training.errors import DataError, WorkloadError
from training.export import export
from training.spec import Conditions, RunSpec
from training.workload import open_workload
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.splits import find_splits

SIZES: dict[str, Any] = {"train": 40, "validation": 13, "seed": 1, "max_length": 16, "vocabulary": 300}
NAMES = ["red", "green", "blue"]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def sets(folder: Path, name: str = "sets.jsonl", samples: int = 80) -> Data:
    """Texts that name the labels that they have."""
    rows = []
    for number in range(samples):
        there = [each for at, each in enumerate(NAMES) if number >> at & 1]
        rows.append({"text": f"film {' '.join(there)} {number}", "label": there})
    write(folder / name, rows)
    kind = {"problem_type": "multi_label_classification", "classes": NAMES}
    return Data.model_validate(SIZES | kind | {"source": "files", "train_file": name})


def numbers(folder: Path) -> Data:
    """Pairs of texts, and how many words they have together."""
    rows = [
        {
            "one": " ".join(["word"] * (1 + at % 4)),
            "two": " ".join(["other"] * (1 + at % 3)),
            "score": at % 7 / 2,
        }
        for at in range(60)
    ]
    write(folder / "pairs.jsonl", rows)
    named = {
        "text_column": "one",
        "pair_column": "two",
        "label_column": "score",
        "problem_type": "regression",
    }
    return Data.model_validate(SIZES | named | {"source": "files", "train_file": "pairs.jsonl"})


def trained(run: Run, prepared: Prepared, data: Data, conditions: dict[str, Any], **work: Any) -> Path:
    plain = run_spec(prepared, data, epochs=2, workers=2, **work)
    spec = RunSpec.model_validate(plain.model_dump() | {"conditions": conditions})
    out, statuses = run(spec, prepared.path)
    assert statuses == [0, 0]
    home = export(spec, prepared.path, out, out / "home")
    return home.parent


def test_several_labels_are_learnt_and_judged(run: Run, tmp_path: Path) -> None:
    data = sets(tmp_path)
    prepared = prepare_texts(data, None, tmp_path / "data", tmp_path)
    split = find_splits(prepared.path, prepared.digest)["train"]
    assert split.labels.shape == (40, 3) and set(np.unique(split.labels)) == {0, 1}
    counts = load(prepared.path / "dataset.json")["counts"]["train"]["classes"]
    assert counts == dict(zip(NAMES, split.labels.sum(axis=0).tolist(), strict=True))

    asked = {"metrics": ["f1_micro", "auroc"], "predictions": True, "save": "last"}
    out = trained(run, prepared, data, asked)
    last = load(out / "result.json")["epochs"][-1]
    assert {"validation_loss", "validation_accuracy", "validation_f1_micro", "validation_auroc"} <= set(last)
    assert math.isfinite(last["validation_loss"]) and 0 <= last["validation_auroc"] <= 1
    found = AutoModelForSequenceClassification.from_pretrained(out / "home")
    assert found.config.problem_type == "multi_label_classification"
    assert list(found.config.id2label.values()) == NAMES
    # transformers' own loss of the exported model is the one that was computed here.
    workload = open_workload(run_spec(prepared, data).work, prepared.path, Conditions(), tmp_path)
    batch = workload.batch("validation", torch.arange(13), 1)
    with torch.inference_mode():
        theirs = found.eval()(**batch).loss.item()
    assert theirs == pytest.approx(last["validation_loss"], rel=1e-5)


def test_pairs_with_numbers_are_learnt_and_judged(run: Run, tmp_path: Path) -> None:
    data = numbers(tmp_path)
    prepared = prepare_texts(data, None, tmp_path / "data", tmp_path)
    split = find_splits(prepared.path, prepared.digest)["validation"]
    assert split.labels.dtype == np.float32
    tokens = split.tokens(np.arange(13))
    tokenizer = AutoTokenizer.from_pretrained(trained_tokenizer(prepared, data, tmp_path))
    first = tokens["input_ids"][0][tokens["attention_mask"][0] == 1]
    types = tokens["token_type_ids"][0][tokens["attention_mask"][0] == 1]
    words = tokenizer.convert_ids_to_tokens(first.tolist())
    assert words[0] == "[CLS]" and words.count("[SEP]") == 2
    end = words.index("[SEP]") + 1
    assert set(types[:end]) == {0} and set(types[end:]) == {1}
    assert set(words[1 : end - 1]) == {"word"} and set(words[end:-1]) == {"other"}

    out = trained(run, prepared, data, {"metrics": ["pearson", "spearman", "r2"], "save": "last"})
    last = load(out / "result.json")["epochs"][-1]
    names = ("loss", "mean_absolute_error", "pearson", "spearman", "r2")
    assert {f"validation_{name}" for name in names} <= set(last)
    assert "validation_accuracy" not in last
    found = AutoModelForSequenceClassification.from_pretrained(out / "home")
    assert found.config.num_labels == 1 and found.config.problem_type == "regression"
    workload = open_workload(run_spec(prepared, data).work, prepared.path, Conditions(), tmp_path)
    batch = workload.batch("validation", torch.arange(13), 1)
    with torch.inference_mode():
        theirs = found.eval()(**batch).loss.item()
    assert theirs == pytest.approx(last["validation_loss"], rel=1e-5)


def trained_tokenizer(prepared: Prepared, data: Data, folder: Path) -> Path:
    """The data set's tokenizer as transformers loads it."""
    workload = open_workload(run_spec(prepared, data).work, prepared.path, Conditions(), folder)
    out = folder / "tokenizer"
    out.mkdir()
    workload.save_model(workload.model(), out)
    return out


def test_a_test_file_is_the_test_split(tmp_path: Path) -> None:
    data = sets(tmp_path)
    write(tmp_path / "test.jsonl", [{"text": f"other {at}", "label": "red|blue"} for at in range(9)])
    with_test = Data.model_validate(data.model_dump() | {"test": 7, "test_file": "test.jsonl"})
    prepared = prepare_texts(with_test, None, tmp_path / "data", tmp_path)
    splits = find_splits(prepared.path, prepared.digest)
    assert {name: len(split) for name, split in splits.items()} == {"train": 40, "validation": 13, "test": 7}
    assert splits["test"].labels.tolist() == [[1, 0, 1]] * 7
    repeated = load(prepared.path / "dataset.json")["repeated_texts"]
    assert repeated["test_also_in_train"] == 0

    split_off = Data.model_validate(data.model_dump() | {"test": 7})
    drawn = prepare_texts(split_off, None, tmp_path / "data", tmp_path)
    ids = {name: split.input_ids for name, split in find_splits(drawn.path, drawn.digest).items()}
    assert {name: len(each) for name, each in ids.items()} == {"train": 40, "validation": 13, "test": 7}
    seen = {tuple(row) for name in ("train", "validation") for row in ids[name].tolist()}
    assert not seen & {tuple(row) for row in ids["test"].tolist()}


@pytest.mark.parametrize("architecture", ["distilbert", "roberta", "electra", "modernbert"])
def test_encoders_of_other_architectures(tmp_path: Path, architecture: str) -> None:
    data = numbers(tmp_path)
    prepared = prepare_texts(data, None, tmp_path / "data", tmp_path)
    model = TINY | {"architecture": architecture}
    work = run_spec(prepared, data, model=model).work
    workload = open_workload(work, prepared.path, Conditions(), tmp_path)
    network: Any = workload.model()
    assert (network.config.num_hidden_layers, network.config.hidden_size) == (1, 8)
    assert network.config.model_type == architecture
    loss = workload.loss(network, workload.batch("train", torch.arange(4), 1))
    loss.backward()  # type: ignore[no-untyped-call]
    assert math.isfinite(loss.item())


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"architecture": "nobert"}, "transformers has no architecture nobert"),
        ({"architecture": "fnet"}, "The configuration of fnet has no num_attention_heads"),
        ({"config": {"widht": 3}}, "The configuration of bert has no widht, so"),
        ({"architecture": "xlnet"}, "The configuration of xlnet has no"),
    ],
)
def test_a_model_that_cannot_be_built(tmp_path: Path, model: dict[str, Any], said: str) -> None:
    data = numbers(tmp_path)
    prepared = prepare_texts(data, None, tmp_path / "data", tmp_path)
    work = run_spec(prepared, data, model=TINY | model).work
    with pytest.raises(WorkloadError, match=said):
        open_workload(work, prepared.path, Conditions(), tmp_path).model()


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    data = sets(tmp_path)
    write(tmp_path / "sets.jsonl", [{"text": "x", "label": ["red", "black"]}])
    with pytest.raises(DataError, match=r"'black'\] in line 1; the classes are red, green, blue, or their"):
        prepare_texts(data, None, tmp_path / "data", tmp_path)
    data = numbers(tmp_path)
    write(tmp_path / "pairs.jsonl", [{"one": "x", "two": "y", "score": "much"}])
    with pytest.raises(DataError, match="has the label 'much' in line 1; give a number"):
        prepare_texts(data, None, tmp_path / "data", tmp_path)
    write(tmp_path / "pairs.jsonl", [{"one": "x", "score": 1}])
    with pytest.raises(DataError, match="has no two in line 1"):
        prepare_texts(data, None, tmp_path / "data", tmp_path)
    for changes, said in (
        ({"problem_type": "multi_label_classification"}, "needs classes, the names of its labels"),
        ({"problem_type": "regression", "classes": ["a", "b"]}, "problem_type: regression has no classes"),
        ({"test_file": "test.csv"}, "test_file goes with test, which says how many"),
        ({"source": "movie-reviews", "train_file": None, "pair_column": "b"}, "pair_column goes with source"),
    ):
        asked = SIZES | {"source": "files", "train_file": "a.csv"} | changes
        with pytest.raises(ValidationError, match=said):
            Data.model_validate(asked)
