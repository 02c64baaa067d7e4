"""Tokens that a run makes itself equal the prepared ones, or the run fails with one clear sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.training.training_helpers import Datasets, Run, data_spec, load, run_spec
from training.data.prepare import Prepared
from training.errors import DataError
from training.spec import Conditions, RunSpec
from training.workloads.text_classification.in_run import (
    COLUMNS,
    NOTE,
    TOKENS,
    prepare_in_run,
    tokenise_alone,
    tokenise_rows,
)

SPLITS = ("train.arrow", "validation.arrow")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo the tokenizer's thread settings after each test."""
    for name in ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def spec_of(prepared: Prepared, threads: int = 1, workers: int = 1) -> RunSpec:
    usual = run_spec(prepared, data_spec(), workers=workers)
    return usual.model_copy(update={"conditions": Conditions(threads=threads, tokenizing="in_run")})


def table(prepared: Prepared, *parts: range) -> pa.Table:
    """The tokens of these rows, each part as a task would make it."""
    made: list[pa.RecordBatch] = []
    for part in parts:
        rows = pa.record_batch({"id": pa.array(np.array(part, dtype=np.int64))})
        made += tokenise_rows(iter([rows]), str(prepared.path), prepared.digest, 1)
    return pa.Table.from_batches(made, COLUMNS)


COMMAND = """
import sys
from training.__main__ import main
status = main(["tokenise", *sys.argv[1:]])
assert "torch" not in sys.modules, "loading torch would be counted as preparing"
sys.exit(status)
"""


def tokenise(spec: Path, data: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """The command, in a process of its own, because it sets the tokenizer's number of threads."""
    arguments = ["--spec", str(spec), "--data", str(data), "--out", str(out)]
    return subprocess.run([sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_process_makes_the_same_files(datasets: Datasets, tmp_path: Path, threads: int) -> None:
    prepared = datasets(data_spec())
    spec = tmp_path / "spec.json"
    spec.write_text(spec_of(prepared, threads).model_dump_json(), encoding="utf-8")
    out = tmp_path / "out"
    done = tokenise(spec, prepared.path, out)
    assert done.returncode == 0, done.stderr
    note = load(out / NOTE)
    assert note["rows"] == 48 and note["started"] < note["ended"]
    assert note["by"].startswith("one process on ") and note["by"].endswith(
        "1 thread" if threads == 1 else "2 threads"
    )
    for name in SPLITS:
        made = out / TOKENS / name
        assert made.read_bytes() == (prepared.path / name).read_bytes()
        assert note["files"][name] == load(prepared.path / "dataset.json")["files"][name]


@pytest.mark.parametrize("workers", [1, 2])
def test_ranks_read_what_the_run_made_and_end_with_the_same_weights(
    run: Run, datasets: Datasets, tmp_path: Path, workers: int
) -> None:
    prepared = datasets(data_spec())
    usual, _ = run(run_spec(prepared, data_spec(), workers=workers), prepared.path)
    spec, out = spec_of(prepared, workers=workers), tmp_path / "in-run"
    tokenise_alone(spec, prepared.path, out, 0.0)
    # Without the prepared tokens, so the ranks can't read those.
    bare = shutil.copytree(prepared.path, tmp_path / "bare")
    for name in SPLITS:
        (bare / name).unlink()
    _, statuses = run(spec, bare, out)
    assert statuses == [0] * workers
    digests = [load(folder / "result.json")["weights_digest"] for folder in (usual, out)]
    assert digests[0] == digests[1]


def test_parts_in_any_order_are_put_in_theirs(datasets: Datasets, tmp_path: Path) -> None:
    prepared = datasets(data_spec())
    # The first part runs into the validation reviews (37 of the 48 are for training), and one part is empty.
    parts = table(prepared, range(30, 41), range(0), range(41, 48), range(30))
    prepare_in_run(spec_of(prepared), prepared.path, tmp_path, "tasks", 1.0, lambda: parts)
    for name in SPLITS:
        assert (tmp_path / TOKENS / name).read_bytes() == (prepared.path / name).read_bytes()


def test_what_differs_from_what_was_prepared_is_refused(datasets: Datasets, tmp_path: Path) -> None:
    prepared = datasets(data_spec())
    whole = table(prepared, range(48))
    ids = whole.column("input_ids").to_pylist()
    ids[40][1] += 1
    spoilt = whole.set_column(1, COLUMNS.field("input_ids"), pa.array(ids, COLUMNS.field("input_ids").type))
    cases = {
        "of the validation texts .* of 11 samples, the first is number 3": spoilt,
        "of the validation texts .* 10 samples instead of 11": whole.slice(0, 47),
        "of the train texts .* of 37 samples, the first is number 0": table(
            prepared, range(1, 48), range(1, 2)
        ),
    }
    for said, made in cases.items():
        tokenise_so = partial(lambda made: made, made)
        with pytest.raises(DataError, match=said) as raised:
            prepare_in_run(spec_of(prepared), prepared.path, tmp_path, "x", 1.0, tokenise_so)
        text = str(raised.value)
        assert "\n" not in text and "differ from the prepared ones" in text
        assert not (tmp_path / NOTE).exists()


def test_ranks_refuse_tokens_that_are_not_there_or_are_damaged(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    spec = spec_of(prepared)
    out, statuses = run(spec, prepared.path)
    assert statuses == [1]
    error = load(out / "error-0.json")
    assert error["type"] == "DataError" and error["message"].startswith("No tokens were made for this run (")
    tokenise_alone(spec, prepared.path, out, 0.0)
    for spoil in ("change", "remove"):
        victim = out / TOKENS / "train.arrow"
        if spoil == "change":
            content = bytearray(victim.read_bytes())
            content[len(content) // 2] ^= 1
            victim.write_bytes(content)
        else:
            victim.unlink()
        assert run(spec, prepared.path, out)[1] == [1]
        message = load(out / "error-0.json")["message"]
        assert message.startswith("The tokens that were made for this run are damaged (")
        assert str(victim) in message


def test_texts_that_are_damaged_or_missing_are_said(datasets: Datasets, tmp_path: Path) -> None:
    prepared = datasets(data_spec())
    copy = shutil.copytree(prepared.path, tmp_path / "copy")
    with (copy / "train.texts.arrow").open("ab") as file:
        file.write(b"x")
    spec = tmp_path / "spec.json"
    spec.write_text(spec_of(prepared).model_dump_json(), encoding="utf-8")
    done = tokenise(spec, copy, tmp_path / "out")
    (said,) = done.stderr.splitlines()
    assert (
        done.returncode == 1 and said.startswith("The data set ") and "is damaged (train.texts.arrow)" in said
    )
    about = load(copy / "dataset.json")
    for name in ("train.texts.arrow", "validation.texts.arrow"):
        del about["files"][name]
    (copy / "dataset.json").write_text(json.dumps(about), encoding="utf-8")
    with pytest.raises(DataError, match=r"has no texts .* in_run need"):
        tokenise_alone(spec_of(prepared), copy, tmp_path / "out", 1.0)
