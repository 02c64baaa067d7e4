"""Whole runs: what they leave behind, and that the work alone decides the weights."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
import torch

from tests.unit.training.training_helpers import TINY, Datasets, Run, data_spec, events, load, run_spec
from training.spec import PHASES

BEFORE_AND_AFTER = ("queue", "launch", "imports", "rendezvous", "shutdown")


def test_what_a_run_leaves_behind(
    run: Run, datasets: Datasets, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = tmp_path / "DIGEST"
    environment.write_text("abc\n", encoding="utf-8")
    monkeypatch.setenv("TRAINBED_ENV_DIGEST", str(environment))
    prepared = datasets(data_spec())
    spec = run_spec(prepared, data_spec(), epochs=3, evaluate_every_epochs=2)
    out, statuses = run(spec, prepared.path)
    assert statuses == [0]
    names = ["census-0.json", "progress.jsonl", "rank-0.json", "result.json", "starts-0.jsonl", "steps.jsonl"]
    assert sorted(path.name for path in out.iterdir()) == [*names, "tensorboard"]
    assert load(out / "census-0.json")["environment"]["TRAINBED_ENV_DIGEST"] == str(environment)
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in out.iterdir() if path.is_file())

    result, rank = load(out / "result.json"), load(out / "rank-0.json")
    assert result["status"] == "ok"
    assert result["validation_count"] == 11
    assert result["weights_digest"] == rank["weights_digest"]
    assert [epoch["epoch"] for epoch in result["epochs"]] == [1, 2, 3]
    assert ["validation_accuracy" in epoch for epoch in result["epochs"]] == [False, True, True]

    assert (rank["rank"], rank["world_size"], rank["threads"], rank["steps"]) == (0, 1, 1, 15)
    assert rank["environment_digest"] == "abc"
    assert rank["OMP_NUM_THREADS"] == "1"
    times = rank["times"]
    moments = [times[name] for name in ("process_start", "imports_done", "train_start", "train_end")]
    assert moments == sorted(moments) and moments[0] < moments[1] and moments[-2] < moments[-1]
    spent = sum(each for phase, each in rank["phases"].items() if phase not in BEFORE_AND_AFTER)
    assert math.isclose(spent, rank["train_s"], rel_tol=1e-12)
    assert math.isclose(rank["train_s"], times["train_end"] - times["train_start"], abs_tol=0.01)
    assert set(rank["phases"]) <= set(PHASES)
    assert rank["phases"]["forward"] > 0

    told = events(out)
    kinds = [event["event"] for event in told if event["event"] != "step"]
    assert kinds == ["start", *["epoch", "phases"] * 3, "end"]
    of_epochs = [event["seconds"] for event in told if event["event"] == "phases"]
    for name in ("forward", "backward", "optimiser"):
        assert sum(spent[name] for spent in of_epochs) == pytest.approx(rank["phases"][name], rel=1e-9)
    # The data set is opened before the first epoch: however long that takes, no epoch's figures include it.
    assert 0 < sum(spent["data"] for spent in of_epochs) < rank["phases"]["data"]
    assert told[0]["steps_per_epoch"] == 5
    last = [event for event in told if event["event"] == "step"][-1]
    assert (last["epoch"], last["step"], last["steps"]) == (3, 5, 5)
    assert all(event["time"] > 0 for event in told)
    (alone,) = last["ranks"]
    assert (alone["rank"], alone["host"], alone["step"]) == (0, os.uname().nodename, 5)
    assert alone["loss"] == last["loss"] and alone["samples_per_s"] == last["samples_per_s"]
    assert "ranks" not in json.loads((out / "steps.jsonl").read_text(encoding="utf-8").splitlines()[-1])


def test_the_same_work_gives_the_same_bits_and_another_seed_does_not(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    digests = []
    for seed in (3, 3, 4):
        out, statuses = run(run_spec(prepared, data_spec(), workers=2, seed=seed), prepared.path)
        assert statuses == [0, 0]
        digests.append(load(out / "result.json")["weights_digest"])
        assert {load(out / f"rank-{rank}.json")["weights_digest"] for rank in (0, 1)} == {digests[-1]}
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("train", [29, 26], ids=["uneven shares", "a rank without a review"])
def test_an_uneven_batch_has_the_gradient_of_all_its_reviews(
    run: Run, datasets: Datasets, train: int
) -> None:
    """Adam's first moment comes from the gradients of the steps: a whole batch, then the uneven rest."""
    data = data_spec(train=train, validation=7)
    prepared = datasets(data)
    moments, figures = [], []
    for workers, batch in ((1, 24), (3, 8)):
        settings = {"workers": workers, "batch_per_worker": batch, "checkpoint_every_epochs": 1}
        spec = run_spec(prepared, data, model=TINY | {"dropout": 0.0}, **settings)
        out, statuses = run(spec, prepared.path)
        assert statuses == [0] * workers
        (kept,) = (out / "checkpoints").iterdir()
        state = torch.load(kept / "state.pt", weights_only=True)["optimiser"]["state"]
        moments.append(torch.cat([state[number]["exp_avg"].flatten() for number in sorted(state)]))
        figures.append(load(out / "result.json")["epochs"][0])
    assert moments[0].abs().max() > 1e-5
    torch.testing.assert_close(moments[0], moments[1], rtol=1e-3, atol=1e-6)
    assert figures[0]["train_loss"] == pytest.approx(figures[1]["train_loss"], rel=1e-6)


def test_every_validation_review_counts_once_whatever_the_world_size(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    figures = []
    for workers in (1, 2, 3):
        # The learning rate is so small that the weights stay those of the start.
        spec = run_spec(prepared, data_spec(), workers=workers, batch_per_worker=2, warmup_steps=10**9)
        out, _ = run(spec, prepared.path)
        figures.append(load(out / "result.json")["epochs"][0])
    for each in figures:
        assert each["validation_count"] == 11
        assert each["validation_correct"] == figures[0]["validation_correct"]
        assert each["validation_loss"] == pytest.approx(figures[0]["validation_loss"], rel=1e-5)
        assert each["validation_accuracy"] == each["validation_correct"] / 11


def test_every_step_is_kept_as_a_line_and_as_scalars(run: Run, datasets: Datasets) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    prepared = datasets(data_spec())
    out, _ = run(run_spec(prepared, data_spec(), epochs=2, workers=2, batch_per_worker=4), prepared.path)
    lines = (out / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    assert [(step["epoch"], step["step"]) for step in steps] == [(e, s) for e in (1, 2) for s in range(1, 6)]
    for step in steps:
        assert step["loss"] > 0 and step["samples_per_s"] > 0 and step["memory_mb"] > 0
        assert step["tokens_per_s"] == pytest.approx(16 * step["samples_per_s"])
    board = EventAccumulator(str(out / "tensorboard"))
    board.Reload()
    losses = board.Scalars("train/loss")
    assert [scalar.step for scalar in losses] == list(range(1, 11))
    assert [scalar.value for scalar in losses] == pytest.approx([step["loss"] for step in steps], rel=1e-6)
    assert [scalar.step for scalar in board.Scalars("epoch/validation_accuracy")] == [5, 10]
    assert all(scalar.value > 0 for scalar in board.Scalars("phase/backward"))


def test_threads_are_noted_again_once_the_ranks_have_met(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    out, statuses = run(run_spec(prepared, data_spec(), epochs=1, workers=2), prepared.path)
    assert statuses == [0, 0]
    names = ("threads", "threads after meeting")
    for rank in (0, 1):
        census = load(out / f"census-{rank}.json")
        before, after = (sum(map(int, census[name].values())) for name in names)
        assert after > before, "gloo's are there, and what watches the peers"


def test_activations_computed_again_give_the_same_bits(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    digests = set()
    for again in (False, True):
        spec = run_spec(prepared, data_spec(), workers=2, activation_checkpointing=again)
        out, statuses = run(spec, prepared.path)
        assert statuses == [0, 0]
        digests.add(load(out / "result.json")["weights_digest"])
    assert len(digests) == 1


def test_a_batch_in_parts_is_the_same_batch_to_rounding(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    weights = []
    for parts in (1, 3):
        settings = {"workers": 2, "gradient_accumulation": parts, "checkpoint_every_epochs": 1}
        spec = run_spec(prepared, data_spec(), model=TINY | {"dropout": 0.0}, **settings)
        out, statuses = run(spec, prepared.path)
        assert statuses == [0, 0]
        (kept,) = (out / "checkpoints").iterdir()
        weights.append(torch.load(kept / "state.pt", weights_only=True)["model"])
    for name, tensor in weights[0].items():
        torch.testing.assert_close(tensor, weights[1][name], rtol=1e-3, atol=1e-5)
