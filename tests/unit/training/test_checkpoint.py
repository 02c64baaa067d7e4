"""Checkpoints: complete or absent, the newest good one, and the same bits after resuming from any of them."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.training.training_helpers import TINY, Datasets, Run, data_spec, events, load, run_spec
from training.checkpoint import CheckpointFolder, read_checkpoint
from training.errors import CheckpointError, OtherWorkError
from training.export import export
from training.session import Position
from training.spec import RunSpec

WORK = "a" * 64


def state(number: int) -> dict[str, Any]:
    return {"steps": number, "model": {"weight": torch.full((3,), float(number))}, "words": ["x", 1, None]}


def folder(path: Path, *steps: int, keep: int = 9, work: str = WORK) -> CheckpointFolder:
    kept = CheckpointFolder(path / "checkpoints", work, keep)
    for number in steps:
        kept.write(state(number), Position(number, 0))
    return kept


def spoil(kept: CheckpointFolder, name: str, how: str) -> None:
    path = kept.path / name
    if how == "truncated":
        os.truncate(path / "state.pt", (path / "state.pt").stat().st_size // 2)
    elif how == "flipped":
        flipped = bytearray((path / "state.pt").read_bytes())
        flipped[len(flipped) // 2] ^= 1
        (path / "state.pt").write_bytes(flipped)
    elif how == "without weights":
        (path / "state.pt").unlink()
    elif how == "foreign":
        shutil.rmtree(path)
        path.mkdir()
        (path / "pytorch_model.bin").write_bytes(b"something else")
    elif how == "a file":
        shutil.rmtree(path)
        path.write_bytes(b"something else")
    elif how == "another format":
        about = load(path / "checkpoint.json")
        (path / "checkpoint.json").write_text(json.dumps(about | {"format": 99}))
    elif how == "code in it":
        content = pickle.dumps(os.getcwd)
        (path / "state.pt").write_bytes(content)
        about = load(path / "checkpoint.json") | {"sha256": hashlib.sha256(content).hexdigest()}
        (path / "checkpoint.json").write_text(json.dumps(about))


def test_the_newest_is_read_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    kept = folder(tmp_path, 10, 20, 30, keep=2)
    assert sorted(path.name for path in kept.path.iterdir()) == ["000000020-000000", "000000030-000000"]
    name, faults = kept.newest()
    assert (name, faults) == ("000000030-000000", [])
    found = kept.read("000000030-000000")
    assert found["words"] == ["x", 1, None]
    assert torch.equal(found["model"]["weight"], torch.full((3,), 30.0))


@pytest.mark.parametrize(
    "how",
    ["truncated", "flipped", "without weights", "foreign", "a file", "another format", "code in it"],
)
def test_a_bad_one_is_named_and_the_one_before_is_taken(tmp_path: Path, how: str) -> None:
    kept = folder(tmp_path, 10, 20)
    spoil(kept, "000000020-000000", how)
    name, faults = kept.newest()
    assert name == "000000010-000000"
    (fault,) = faults
    assert str(kept.path / "000000020-000000") in fault and fault.endswith(".")
    # Writing it again replaces it.
    kept.write(state(20), Position(20, 0))
    assert kept.newest() == ("000000020-000000", [])


def test_one_of_another_work_is_refused(tmp_path: Path) -> None:
    folder(tmp_path, 10)
    other = folder(tmp_path, work="b" * 64)
    with pytest.raises(OtherWorkError, match=r"is from another work \(aaaaaaaa, not bbbbbbbb\): give this"):
        other.newest()


def test_what_a_killed_writer_left_is_no_checkpoint_and_goes(tmp_path: Path) -> None:
    kept = folder(tmp_path, 10)
    shutil.copytree(kept.path / "000000010-000000", kept.path / ".new-x")
    shutil.copytree(kept.path / "000000010-000000", kept.path / ".old-x")
    assert kept.newest() == ("000000010-000000", [])
    kept.clean()
    assert [path.name for path in kept.path.iterdir()] == ["000000010-000000"]


def test_a_full_disk_is_said_and_leaves_the_others_untouched(full_disk: Path) -> None:
    kept = folder(full_disk, 10)
    big = {"model": {"weight": torch.zeros(1 << 19)}}
    with pytest.raises(
        CheckpointError, match="000000020-000000 can't be written: No space left on device; earlier"
    ):
        kept.write(big, Position(20, 0))
    assert [path.name for path in kept.path.iterdir()] == ["000000010-000000"]
    assert kept.newest() == ("000000010-000000", [])


def test_a_run_on_a_full_disk_fails_with_one_sentence(run: Run, datasets: Datasets, full_disk: Path) -> None:
    prepared = datasets(data_spec())
    wide = {"layers": 1, "hidden": 256, "heads": 2, "intermediate": 256}
    spec = run_spec(prepared, data_spec(), model=wide, checkpoint_every_epochs=1)
    out, statuses = run(spec, prepared.path, full_disk / "out")
    assert statuses == [1]
    assert "can't be written: No space left on device" in load(out / "error-0.json")["message"]
    assert not (out / "result.json").exists()


@pytest.mark.parametrize(
    ("workers", "changes"),
    [
        (1, {}),
        (2, {}),
        (2, {"gradient_sync": "rows"}),
        (2, {"grouping": "length", "padding": "longest", "dropout_draws": "16_bit"}),
        (
            2,
            {
                "precision": "bf16",
                "padding": "none",
                "model": TINY | {"last_layer": "first_token"},
                "dropout_draws": "16_bit",
                "gradient_sync": "rows",
                "gradient_accumulation": 2,
                "activation_checkpointing": True,
            },
        ),
    ],
)
def test_a_run_gone_on_from_any_checkpoint_ends_with_the_same_bits(
    run: Run, datasets: Datasets, tmp_path: Path, workers: int, changes: dict[str, Any]
) -> None:
    prepared = datasets(data_spec())
    settings: dict[str, Any] = {"workers": workers, "batch_per_worker": 8 // workers, "epochs": 3}
    settings |= {"checkpoint_every_steps": 1, "checkpoint_every_epochs": 1, "keep_checkpoints": 99}
    spec = run_spec(prepared, data_spec(), **settings | changes)
    whole, statuses = run(spec, prepared.path)
    assert statuses == [0] * workers
    names = sorted(path.name for path in (whole / "checkpoints").iterdir())
    # One after each of 3 x 5 steps, and one after each evaluation.
    assert len(names) == 18
    expected = load(whole / "result.json")
    chosen = ["000000001-000000", "000000005-000000", "000000005-000001", "000000008-000001", names[-1]]
    for name in chosen:
        out = tmp_path / f"from-{name}"
        shutil.copytree(whole / "checkpoints" / name, out / "checkpoints" / name)
        _, statuses = run(spec, prepared.path, out)
        assert statuses == [0] * workers
        found = load(out / "result.json")
        assert found["weights_digest"] == expected["weights_digest"], name
        for one, two in zip(found["epochs"], expected["epochs"], strict=True):
            assert one | {"seconds": 0} == two | {"seconds": 0}
        (resumed,) = [event for event in events(out) if event["event"] == "resume"]
        assert resumed["steps"] == int(name.split("-")[0])
        assert load(out / "rank-0.json")["steps"] == 15 - resumed["steps"]


@pytest.mark.parametrize("sync", ["dense", "rows"])
def test_three_ranks_go_on_with_the_same_bits_after_an_epoch(
    run: Run, datasets: Datasets, tmp_path: Path, sync: str
) -> None:
    """With three ranks a gradient's place in its bucket decides the order of a sum; resuming restores it."""
    prepared = datasets(data_spec())
    settings = {"workers": 3, "batch_per_worker": 4, "epochs": 3, "checkpoint_every_epochs": 2}
    spec = run_spec(prepared, data_spec(), **settings, gradient_sync=sync)
    whole, _ = run(spec, prepared.path)
    out = tmp_path / "resumed"
    shutil.copytree(whole / "checkpoints", out / "checkpoints")
    _, statuses = run(spec, prepared.path, out)
    assert statuses == [0, 0, 0]
    assert load(whole / "result.json")["weights_digest"] == load(out / "result.json")["weights_digest"]


def test_a_run_passes_over_a_damaged_checkpoint_and_says_so(
    run: Run, datasets: Datasets, tmp_path: Path
) -> None:
    prepared = datasets(data_spec())
    spec = run_spec(prepared, data_spec(), workers=2, epochs=2, checkpoint_every_epochs=1, batch_per_worker=4)
    whole, _ = run(spec, prepared.path)
    out = tmp_path / "resumed"
    shutil.copytree(whole / "checkpoints", out / "checkpoints")
    newest = CheckpointFolder(out / "checkpoints", spec.work.digest, 2)
    spoil(newest, "000000010-000002", "truncated")
    _, statuses = run(spec, prepared.path, out)
    assert statuses == [0, 0]
    told = {event["event"]: event for event in events(out)}
    assert "000000010-000002 is damaged" in told["checkpoint_passed_over"]["message"]
    assert told["resume"]["steps"] == 5
    assert load(whole / "result.json")["weights_digest"] == load(out / "result.json")["weights_digest"]


def test_a_run_refuses_the_checkpoints_of_another_work(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    out, _ = run(run_spec(prepared, data_spec(), checkpoint_every_epochs=1), prepared.path)
    before = load(out / "result.json")
    other = run_spec(prepared, data_spec(), checkpoint_every_epochs=1, seed=5)
    _, statuses = run(other, prepared.path, out)
    assert statuses == [1]
    assert "is from another work" in load(out / "error-0.json")["message"]
    assert load(out / "result.json") == before
    assert len(list((out / "checkpoints").iterdir())) == 1


def test_what_was_trained_is_a_model_of_transformers(run: Run, datasets: Datasets, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    prepared = datasets(data_spec())
    spec: RunSpec = run_spec(prepared, data_spec(), checkpoint_every_epochs=1)
    out, _ = run(spec, prepared.path)
    path = export(spec, prepared.path, out, tmp_path / "exported")
    model = AutoModelForSequenceClassification.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    (kept,) = (out / "checkpoints").iterdir()
    weights = read_checkpoint(kept, spec.work.digest)["model"]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, weights[name])
    encoded = tokenizer("good abc", return_tensors="pt")
    assert model(**encoded).logits.shape == (1, 2)
    assert model.config.id2label == {0: "negative", 1: "positive"}
    with pytest.raises(CheckpointError, match="already exists"):
        export(spec, prepared.path, out, path)
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(CheckpointError, match=r"has neither a model .* nor a good checkpoint"):
        export(spec, prepared.path, out, tmp_path / "other")
