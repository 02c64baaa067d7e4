"""One rank of a program that has its own loop: started as it is, and timed from outside."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

from training.assignment import Assignment, Moments, note_census, write_rank_file
from training.data.prepared import find_dataset
from training.distributed.collective import Meeting, meet
from training.errors import ProgramError, Stopped
from training.metrics.gpu import start_sampling, stop_sampling
from training.registry import load_for
from training.session import RankStatus, Session
from training.spec import PHASES
from training.util.files import write_json
from training.util.network import free_port

EVENTS: Final = "events-{rank}.jsonl"
"""What the calls of one rank's program report, in the run's folder."""

AROUND: Final = ("queue", "launch", "imports", "rendezvous", "shutdown")
"""Phases that a program can't know of."""

CALLS: Final = ("training.calls", "trainbed.py")
LOOK_EVERY: Final = 0.2  # s
CENSUS_AFTER: Final = 5.0  # s, unless it reports something before that
UNSEEN: Final = "the program ended before its rank took its census"
DIES_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG of prctl(2)
PATIENCE: Final = 10.0  # s that a program has to exit once it was told to; less than the rank itself has


@dataclass(frozen=True)
class Program:
    """How a program is called."""

    name: str  # for people
    command: tuple[str, ...]
    folder: Path  # where it is started, and may write


@dataclass
class _Said:
    """What a program has reported so far, by its calls."""

    epochs: list[dict[str, Any]] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    weights_digest: str | None = None
    parameters: int | None = None
    seen: bool = False  # whether its census was taken

    def epoch(self, number: int) -> dict[str, Any] | None:
        """What it reported of an epoch, if it did."""
        return next((each for each in self.epochs if each["epoch"] == number), None)


def run_program(given: Assignment) -> None:
    """Run this rank's program and leave this rank's files in the run's folder.

    Raises:
        ProgramError: the program failed, or its ranks ended with different weights.
        Stopped: the rank was told to stop.
        DataError: the data set is not the run's.
        WorkloadError: the workload can't be used.
    """
    imports_done = time.time()
    work, out, peers = given.spec.work, given.out, given.peers
    session = given.begin()
    module = load_for(work.workload, work.workload_digest, "workload")
    program: Program = module.program(work, find_dataset(given.data, work.data_digest), out)
    phase = "its own program"
    peers.status.phase = lambda: phase
    meeting = meet(session)
    peers.start(meeting.store if meeting else None, session)
    if session.rank == 0:
        session.report(
            "start",
            epochs=work.epochs,
            steps_per_epoch=work.steps_per_epoch,
            world_size=session.world_size,
            model=work.model.text(work.data),
            data=work.data.name,
            metric=work.data.metric,
        )
    gpu = start_sampling(session.device, out, session.rank)
    train_start = time.time()
    said, train_s = _run(
        program,
        out / EVENTS.format(rank=session.rank),
        _environment(meeting, unbuffered=given.spec.conditions.script_output == "unbuffered"),
        session,
        peers.status,
        lambda pid: note_census(given, session.rank, pid),
    )
    train_end = time.time()
    threads = given.spec.conditions.threads
    assert threads != "stack"  # no specification has it with a program
    if not said.seen:
        write_json(out / f"census-{session.rank}.json", {"process": {"trouble": UNSEEN}})
    named = {name: seconds for name, seconds in said.phases.items() if name != "other"}
    write_rank_file(
        out,
        session,
        Moments(given.process_start, imports_done, train_start, train_end),
        named | {"other": max(0.0, train_s - sum(named.values()))},
        threads=threads,
        interop_threads=None,
        train_s=train_s,
        steps=None,
        weights_digest=said.weights_digest,
        parameters=said.parameters,
        gpu=stop_sampling(gpu),
        use=None,
    )
    digests = meeting.gather("digest", said.weights_digest or "") if meeting else [said.weights_digest or ""]
    if len(set(digests)) > 1:
        found = ", ".join(f"{rank}: {each[:8] or 'none'}" for rank, each in enumerate(digests))
        raise ProgramError(f"The ranks of {program.name} reported different weights ({found}).")
    if session.rank == 0:
        session.report("end", weights_digest=said.weights_digest)
        result = {"status": "ok", "epochs": said.epochs, "weights_digest": said.weights_digest}
        write_json(out / "result.json", result | {"validation_count": None, "train_s": train_s})
    session.close()
    peers.stop()
    if meeting:
        meeting.leave()


def _run(
    program: Program,
    events: Path,
    environment: dict[str, str],
    session: Session,
    status: RankStatus,
    take_census: Callable[[int], object],
) -> tuple[_Said, float]:
    """Start the program and wait for its end; returns what it said, and how many seconds it took.

    `take_census` is called once with its process's number: when it first reports something, or after
    `CENSUS_AFTER`, because what it computes with is not loaded at its start.
    """
    began, said = time.perf_counter(), _Said()
    events.unlink(missing_ok=True)  # of an earlier attempt
    read = _reader(events)
    with _started(program, events, environment) as process:
        while (code := process.poll()) is None and not session.should_stop():
            reported = read()
            _take(reported, said, session, began)
            status.epoch = len(said.epochs) + 1
            if not said.seen and (reported or time.perf_counter() - began > CENSUS_AFTER):
                said.seen = True
                take_census(process.pid)
            time.sleep(LOOK_EVERY)
        if session.should_stop():  # whoever asks for that may have told the program, too
            raise Stopped(f"{program.name} was running.")
    seconds = time.perf_counter() - began
    _take(read(), said, session, began)
    if code:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise ProgramError(f"{program.name} {how} on rank {session.rank}; the log has its last words.")
    return said, seconds


@contextmanager
def _started(
    program: Program, events: Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, which is ended if it still runs at the end; its output is this process's."""
    package, calls = CALLS
    with tempfile.TemporaryDirectory() as folder:
        for module, file, name in (
            (package, calls, calls),
            ("training", "weights.py", "trainbed_weights.py"),
        ):
            text = resources.files(module).joinpath(file).read_text(encoding="utf-8")
            Path(folder, name).write_text(text, encoding="utf-8")
        environment = environment | {
            "TRAINBED_EVENTS": str(events.absolute()),
            "TRAINBED_PHASES": ",".join(name for name in PHASES if name not in AROUND),
            # Modules are found from where it is started, too, as with PYTHONPATH=. in a project's folder.
            "PYTHONPATH": ":".join(filter(None, (folder, str(program.folder), os.environ.get("PYTHONPATH")))),
        }
        process = subprocess.Popen(
            program.command, cwd=program.folder, env=environment, preexec_fn=_die_with_parent
        )
        try:
            yield process
        finally:
            _end(process)


def _environment(meeting: Meeting | None, *, unbuffered: bool) -> dict[str, str]:
    """As torchrun gives it; what this package sets for its own loop is not there."""
    environment = os.environ | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {})
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PYTHONSAFEPATH"):
        environment.pop(name, None)
    if meeting:
        # Whoever holds the store already, torchrun or this package's rank 0, holds it for the program, too.
        environment |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
        environment.setdefault("TORCHELASTIC_RESTART_COUNT", "0")
    else:
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
        alone |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        environment = alone | environment
    return environment


def _die_with_parent() -> None:
    """In the new process: if the rank is killed, so is its program."""
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _reader(path: Path) -> Callable[[], list[dict[str, Any]]]:
    """A function that returns what was added to a file of events since its last call."""
    at = 0

    def read() -> list[dict[str, Any]]:
        nonlocal at
        try:
            with path.open("rb") as file:
                file.seek(at)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        at += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines()]

    return read


def _take(events: list[dict[str, Any]], said: _Said, session: Session, began: float) -> None:
    """Keep what was reported, and pass epochs on."""
    for event in events:
        kind = event.pop("event")
        if kind == "epoch" and (known := said.epoch(event["epoch"])):
            known.update(event)  # more metrics of it
        elif kind == "epoch":
            so_far = sum(epoch["seconds"] for epoch in said.epochs)
            said.epochs.append(event | {"seconds": time.perf_counter() - began - so_far})
            if session.rank == 0:
                session.report("epoch", **said.epochs[-1])
        elif kind == "phases":
            said.phases = event["seconds"]
        elif kind == "digest":
            said.weights_digest, said.parameters = event["weights_digest"], event["parameters"]
