"""Pretrained encoders, small ones made here: any that transformers loads, by specification alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    DistilBertConfig,
    DistilBertModel,
)

from tests.unit.training.training_helpers import Run, load, prepare_texts
from training.checkpoint import read_checkpoint
from training.data.prepare import Prepared
from training.errors import DataError
from training.spec import RunSpec
from training.workloads.text_classification.settings import Data

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "good",
    "bad",
    *"abcdefgh",
    *(f"##{c}" for c in "abcdefgh"),
]


def save_encoder(
    path: Path, kind: str = "bert", vocabulary: int = len(WORDS), words: int = len(WORDS)
) -> Path:
    """Save a small encoder with its tokenizer, as its authors would."""
    path.mkdir(parents=True)
    torch.manual_seed(0)
    (path / "vocab.txt").write_text("\n".join(WORDS[:words]) + "\n", encoding="utf-8")
    BertTokenizer.from_pretrained(path).save_pretrained(path)
    model: Any
    if kind == "bert":
        small = BertConfig(
            vocab_size=vocabulary, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=8, max_position_embeddings=32,
        )  # fmt: skip
        model = BertModel(small)
    else:
        distilled = DistilBertConfig(
            vocab_size=vocabulary, dim=8, n_layers=2, n_heads=2, hidden_dim=8, max_position_embeddings=32
        )
        model = DistilBertModel(distilled)
    model.save_pretrained(path)
    return path


def data_of(name: str, **changes: Any) -> Data:
    fields = {"train": 24, "validation": 8, "seed": 1, "max_length": 16, "tokenizer": "pretrained"}
    return Data.model_validate(fields | {"pretrained": name} | changes)


def run_of(prepared: Prepared, data: Data, **work: Any) -> RunSpec:
    settings = {"workers": 2, "epochs": 1, "seed": 3, "batch_per_worker": 4, "model": {"init": "pretrained"}}
    settings |= {"learning_rate": 1e-3, "warmup_steps": 2, "data_digest": prepared.digest}
    return RunSpec.model_validate({"stack": "test", "work": settings | {"data": data.model_dump()} | work})


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_an_encoder_in_a_folder_is_fine_tuned(
    run: Run, made_up_sentences: Path, tmp_path: Path, kind: str
) -> None:
    save_encoder(tmp_path / "models" / kind, kind)
    data = data_of(f"models/{kind}")
    prepared = prepare_texts(data, made_up_sentences, tmp_path / "data", tmp_path)
    assert (prepared.path / "encoder" / "model.safetensors").exists()
    assert prepare_texts(data, made_up_sentences, tmp_path / "data", tmp_path).digest == prepared.digest
    # The folder that it came from is no longer needed.
    shutil.rmtree(tmp_path / "models")
    digests = []
    for again in (False, True):
        spec = run_of(prepared, data, checkpoint_every_epochs=1, activation_checkpointing=again)
        out, statuses = run(spec, prepared.path)
        assert statuses == [0, 0], load(out / "error-0.json")
        digests.append(load(out / "result.json")["weights_digest"])
    assert digests[0] == digests[1]
    (start, *_) = [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]
    assert start["model"] == f"models/{kind}, pretrained"
    assert start["data"].endswith(f"16 tokens (models/{kind})")


def test_the_encoders_weights_are_where_training_starts(
    run: Run, made_up_sentences: Path, tmp_path: Path
) -> None:
    save_encoder(tmp_path / "tiny")
    data = data_of("tiny")
    prepared = prepare_texts(data, made_up_sentences, tmp_path / "data", tmp_path)
    kept = []
    for init in ({"init": "pretrained", "dropout": 0.0}, {"init": "scratch", "layers": 2, "hidden": 8}):
        spec = run_of(
            prepared,
            data,
            model=init,
            workers=1,
            learning_rate=1e-9,
            warmup_steps=0,
            checkpoint_every_epochs=1,
        )
        out, statuses = run(spec, prepared.path)
        assert statuses == [0], load(out / "error-0.json")
        (folder,) = (out / "checkpoints").iterdir()
        kept.append(read_checkpoint(folder, spec.work.digest)["model"])
    embedding = "bert.embeddings.word_embeddings.weight"
    original = BertModel.from_pretrained(tmp_path / "tiny").state_dict()["embeddings.word_embeddings.weight"]
    torch.testing.assert_close(kept[0][embedding], original, rtol=0, atol=1e-6)
    assert (kept[1][embedding][: len(original)] - original).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("made", "changes", "said"),
    [
        (
            {"vocabulary": 10},
            {},
            "does not match its model: the tokenizer has 23 entries, the model's embedding 10",
        ),
        ({}, {"max_length": 64}, "takes 32 tokens at most, but max_length is 64: use a shorter one"),
    ],
)
def test_an_encoder_whose_parts_do_not_fit(
    made_up_sentences: Path, tmp_path: Path, made: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    save_encoder(tmp_path / "tiny", **made)
    with pytest.raises(DataError, match=said):
        prepare_texts(data_of("tiny", **changes), made_up_sentences, tmp_path / "data", tmp_path)
    assert not list((tmp_path / "data").glob("*"))


def test_folders_that_hold_no_encoder(made_up_sentences: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"There is no folder .*absent with a pretrained encoder"):
        prepare_texts(data_of("./absent"), made_up_sentences, tmp_path / "data", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"The folder .*empty holds no encoder that can be loaded: "):
        prepare_texts(data_of("empty"), made_up_sentences, tmp_path / "data", tmp_path)
    broken = save_encoder(tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(DataError, match="holds no encoder that can be loaded: "):
        prepare_texts(data_of("broken"), made_up_sentences, tmp_path / "data", tmp_path)


def test_a_data_set_without_the_encoder_that_a_run_asks_for(
    run: Run, made_up_sentences: Path, tmp_path: Path
) -> None:
    save_encoder(tmp_path / "tiny")
    data = data_of("tiny")
    prepared = prepare_texts(data, made_up_sentences, tmp_path / "data", tmp_path)
    shutil.rmtree(prepared.path / "encoder")
    out, statuses = run(run_of(prepared, data, workers=1), prepared.path)
    assert statuses == [1]
    assert "is damaged (encoder/config.json" in load(out / "error-0.json")["message"]


def test_a_loss_that_is_no_number_ends_the_run_and_says_where(
    run: Run, made_up_sentences: Path, tmp_path: Path
) -> None:
    path = save_encoder(tmp_path / "tiny")
    model = BertModel.from_pretrained(path)
    torch.nn.init.constant_(model.embeddings.word_embeddings.weight, float("nan"))
    model.save_pretrained(path)
    data = data_of("tiny")
    prepared = prepare_texts(data, made_up_sentences, tmp_path / "data", tmp_path)
    out, statuses = run(run_of(prepared, data), prepared.path)
    assert statuses == [1, 1]
    error = load(out / "error-0.json")
    assert error["type"] == "DivergedError"
    assert error["message"].startswith(
        "The loss became nan in step 1 of epoch 1 (learning rate 0): use a lower"
    )
    assert not (out / "result.json").exists()
