"""Ranks that are killed at a certain moment, and restarted until they are done."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.rank_processes import exit_codes, rank_variables
from tests.unit.training.training_helpers import events
from training.rank import run_rank
from training.spec import RunSpec
from training.util.network import free_port

PATIENCE = 120.0  # s

Moment = Callable[[Path], bool]


def as_rank(rank: int, world: int, port: int, arguments: tuple[Path, Path, Path]) -> None:
    """The whole of a rank's process."""
    os.environ |= rank_variables(rank, world, port)
    status = run_rank(*arguments)
    sys.stdout.flush()
    os._exit(status)


def start(spec: RunSpec, data: Path, out: Path) -> list[multiprocessing.process.BaseProcess]:
    """Start every rank of a run."""
    import training.job  # noqa: F401  # imported once, before the fork

    file = out.parent / f"{out.name}-spec.json"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    fork, port, world = multiprocessing.get_context("fork"), free_port(), spec.work.world_size
    ranks: list[multiprocessing.process.BaseProcess] = [
        fork.Process(target=as_rank, args=(rank, world, port, (file, data, out))) for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    return ranks


def end(ranks: list[multiprocessing.process.BaseProcess]) -> list[int | None]:
    """Wait for every rank; returns their exit codes."""
    codes = exit_codes(ranks, PATIENCE)
    assert None not in codes, f"{codes.count(None)} ranks did not end by themselves"
    return codes


def kill_at(
    moment: Moment, victim: int, number: signal.Signals, spec: RunSpec, data: Path, out: Path
) -> bool:
    """Run until `moment`, send one rank a signal, wait until all have ended; False if it never came."""
    ranks = start(spec, data, out)
    deadline = time.monotonic() + PATIENCE
    while not moment(out):
        if not all(rank.is_alive() for rank in ranks):
            end(ranks)
            return False
        assert time.monotonic() < deadline
        time.sleep(0.001)
    pid = ranks[victim].pid
    assert pid is not None
    os.kill(pid, number)
    end(ranks)
    return True


def kill_surely(
    moment: Moment, victim: int, number: signal.Signals, spec: RunSpec, data: Path, out: Path
) -> None:
    """`kill_at`, repeated with new runs until the moment is caught: a run may pass it too quickly."""
    for _ in range(10):
        if kill_at(moment, victim, number, spec, data, out):
            return
        shutil.rmtree(out)
    raise AssertionError("the moment never came")


def told(out: Path) -> list[dict[str, Any]]:
    """The run's events so far; none while the last line is half written."""
    try:
        return list(events(out))
    except (OSError, ValueError):
        return []


def last(out: Path) -> dict[str, object]:
    """The newest event, except for the phases that follow an epoch's figures."""
    return next((event for event in reversed(told(out)) if event["event"] != "phases"), {})


def after(seconds: float) -> Moment:
    """The moment this many seconds after training has started; of a run that goes on, after it did so again.

    Before that, ranks may still be on their way to each other, and one that never comes is waited for longer
    than `PATIENCE`.
    """
    before: list[int] = []
    since: list[float] = []

    def reached(out: Path) -> bool:
        if not since:
            starts = sum(event["event"] == "start" for event in told(out))
            if not before:
                before.append(starts)
            if starts > before[0]:
                since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] >= seconds

    return reached


def in_a_step(out: Path) -> bool:
    """While a step is computed, some steps into the second epoch or a later one."""
    found = last(out)
    if found.get("event") == "step":
        return int(str(found["epoch"])) > 1 and found["step"] != found["steps"]
    if found.get("event") != "epoch":
        return False
    return time.time() - float(str(found["time"])) > 0.3 * float(str(found["seconds"]))


def in_a_checkpoint(out: Path) -> bool:
    """While a checkpoint other than the first is written."""
    folder = out / "checkpoints"
    return any(folder.glob(".new-*")) and any(not path.name.startswith(".") for path in folder.iterdir())


def in_an_evaluation(out: Path) -> bool:
    """After an epoch's last step, before its figures."""
    found = last(out)
    return found.get("event") == "step" and found["step"] == found["steps"]


def between_epochs(out: Path) -> bool:
    """After the figures of an epoch, before the first step of the next."""
    return last(out).get("event") == "epoch"
