"""Real processes, killed in the middle of anything, then resumed: the same bits."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.unit.training import killing
from tests.unit.training.training_helpers import Datasets, data_spec, load, run_spec
from training.data.prepare import Prepared
from training.distributed.liveness import SILENT_AFTER
from training.spec import PHASES, RunSpec

DATA = data_spec(train=64, validation=16)
WIDE = {"layers": 2, "hidden": 64, "heads": 2, "intermediate": 64}


@pytest.fixture(scope="module")
def prepared(datasets: Datasets) -> Prepared:
    return datasets(DATA)


def spec(prepared: Prepared, **work: object) -> RunSpec:
    settings = {"workers": 2, "batch_per_worker": 2, "epochs": 4, "model": WIDE, "checkpoint_every_steps": 3}
    return run_spec(prepared, DATA, **(settings | {"checkpoint_every_epochs": 1} | work))


@pytest.fixture(scope="module")
def whole(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """Weights digest of an undisturbed run, and the seconds that it trains."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert killing.end(killing.start(spec(prepared), prepared.path, out)) == [0, 0]
    result = load(out / "result.json")
    return result["weights_digest"], result["train_s"]


def finish(prepared: Prepared, out: Path) -> str:
    """Resume to the end; returns the weights digest."""
    assert killing.end(killing.start(spec(prepared), prepared.path, out)) == [0, 0]
    digest: str = load(out / "result.json")["weights_digest"]
    return digest


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize(
    "moment",
    [killing.in_a_step, killing.in_a_checkpoint, killing.in_an_evaluation, killing.between_epochs],
    ids=lambda moment: moment.__name__,
)
def test_killed_in_the_middle_of_anything(
    prepared: Prepared,
    whole: tuple[str, float],
    tmp_path: Path,
    moment: killing.Moment,
    number: signal.Signals,
) -> None:
    out = tmp_path / "out"
    victim = 0 if moment is killing.in_a_checkpoint else 1  # rank 0 writes
    killing.kill_surely(moment, victim, number, spec(prepared), prepared.path, out)
    assert not (out / "result.json").exists()
    assert finish(prepared, out) == whole[0]
    assert any(event["event"] == "resume" for event in killing.told(out))
    assert not list((out / "checkpoints").glob(".*"))


def random_moments(seed: int, prepared: Prepared, whole: tuple[str, float], out: Path) -> None:
    """Kill the same run several times at random, a random rank with a random signal."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 3)):
        moment = killing.after(draw.uniform(0, whole[1]))
        number = draw.choice([signal.SIGKILL, signal.SIGTERM])
        if not killing.kill_at(moment, draw.randrange(2), number, spec(prepared), prepared.path, out):
            break
    assert finish(prepared, out) == whole[0]


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(
    prepared: Prepared, whole: tuple[str, float], tmp_path: Path, seed: int
) -> None:
    random_moments(seed, prepared, whole, tmp_path / "out")


@pytest.mark.wide
@pytest.mark.parametrize("seed", range(100, 150))
def test_killed_at_fifty_more_random_moments(
    prepared: Prepared, whole: tuple[str, float], tmp_path: Path, seed: int
) -> None:
    random_moments(seed, prepared, whole, tmp_path / "out")


def test_told_to_stop_all_ranks_keep_what_they_did(prepared: Prepared, tmp_path: Path) -> None:
    """One rank receives the signal; all stop before the same step, and no finished step is lost."""
    out = tmp_path / "out"
    lazy = spec(prepared, checkpoint_every_steps=0, checkpoint_every_epochs=4)
    killing.kill_surely(killing.in_a_step, 1, signal.SIGTERM, lazy, prepared.path, out)
    (kept,) = (out / "checkpoints").iterdir()
    message = load(out / "error-1.json")["message"]
    assert "told to stop by SIGTERM" in message and "a checkpoint was saved" in message
    before = int(kept.name.split("-")[0])
    assert before > 16
    killing.end(killing.start(lazy, prepared.path, out))
    (resumed,) = [event for event in killing.told(out) if event["event"] == "resume"]
    assert resumed["steps"] == before


def test_a_killed_rank_is_named_by_the_others(prepared: Prepared, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # Long enough for a few signs of life, which come once a second.
    long = spec(prepared, epochs=100)
    killing.kill_surely(killing.after(3.0), 1, signal.SIGKILL, long, prepared.path, out)
    error = load(out / "error-0.json")
    assert error["type"] == "PeerError"
    assert error["message"].startswith(f"Rank 1 on {os.uname().nodename} is gone: no sign of life for ")
    assert "its last one came from step " in error["message"]
    assert " of epoch " in error["message"]
    # What the ranks reported of themselves meanwhile reaches whoever watches.
    told = [event["ranks"] for event in killing.told(out) if event["event"] == "step"]
    assert [each["rank"] for each in told[-1]] == [0, 1]
    for each in told[-1]:
        assert each["host"] == os.uname().nodename and each["phase"] in PHASES
        assert each["loss"] > 0 and each["samples_per_s"] > 0 and each["memory_mb"] > 0
        assert each["epoch"] > 0 and each["step"] > 0 and each["silent_s"] < SILENT_AFTER
    assert told[-1][0]["loss"] != told[-1][1]["loss"]  # each rank's own


def test_a_rank_that_fails_is_named_with_its_reason(prepared: Prepared, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ranks = killing.start(spec(prepared), prepared.path, out)
    # Rank 0 writes the checkpoints; the others hear of its failure.
    while not (out / "checkpoints").is_dir():
        time.sleep(0.001)
    while not (out / "checkpoints").is_file():
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        with contextlib.suppress(IsADirectoryError):  # rank 0 has recreated it in between
            (out / "checkpoints").write_text("in the way", encoding="ascii")
    assert killing.end(ranks) == [1, 1]
    assert "can't be written" in load(out / "error-0.json")["message"]
    assert "Rank 0 on " in load(out / "error-1.json")["message"]
    assert "can't be written" in load(out / "error-1.json")["message"]


def test_a_rank_that_stands_still_is_noticed_in_time(prepared: Prepared, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ranks = killing.start(spec(prepared, epochs=1000), prepared.path, out)
    while not killing.in_a_step(out):
        assert all(rank.is_alive() for rank in ranks)
        time.sleep(0.01)
    still = ranks[1].pid
    assert still is not None
    os.kill(still, signal.SIGSTOP)
    try:
        since = time.monotonic()
        ranks[0].join(SILENT_AFTER + 15)
        assert ranks[0].exitcode == 1
        assert SILENT_AFTER - 2 < time.monotonic() - since < SILENT_AFTER + 15
        assert load(out / "error-0.json")["message"].startswith("Rank 1 on ")
    finally:
        os.kill(still, signal.SIGKILL)
        ranks[1].join()
