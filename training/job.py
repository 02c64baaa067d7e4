"""One rank from its imports to its last file, around the training loop."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from training.assignment import Assignment, Moments, note_census, note_second_look, write_rank_file
from training.distributed.collective import gather, join, leave, wait_for_all
from training.distributed.liveness import PeerMonitor
from training.errors import Stopped, Yielded
from training.loop import train
from training.metrics.gpu import start_sampling, stop_sampling
from training.metrics.phases import SAMPLE_EVERY, Phases, clock_for
from training.metrics.resource_use import Meter
from training.metrics.step_times import step_times
from training.session import Session
from training.spec import RunSpec
from training.util.files import write_json
from training.util.process import keep_freed_memory
from training.weights import weights_digest


def run_job(given: Assignment) -> None:
    """Do this rank's part of the run and leave its files in the run's folder.

    Raises:
        Stopped: the ranks were told to stop.
        Yielded: the same, but their launcher will resume the work later.
    """
    imports_done = time.time()
    spec, out, peers = given.spec, given.out, given.peers
    set_arithmetic(spec)
    keeps_memory = spec.conditions.allocator == "tuned" and keep_freed_memory()
    session = given.begin()
    census = note_census(given, session.rank)
    device = spec.conditions.device
    phases = Phases(clock_for(device), SAMPLE_EVERY[device])
    peers.status.phase = lambda: phases.current
    peers.start(join(session), session)
    note_second_look(given, session.rank, census)

    gpu = start_sampling(session.device, out, session.rank)
    meter = Meter()
    train_start = time.time()
    try:
        outcome = train(spec.work, given.data, session, phases, peers.status, spec.conditions, out)
    except Stopped as stopped:
        if not session.goes_on_later:
            raise
        shut_down(session, peers)
        raise Yielded(str(stopped)) from stopped
    moments = Moments(given.process_start, imports_done, train_start, time.time())
    resource_use = meter.stop()

    digest = weights_digest(outcome.model.state_dict())
    write_rank_file(
        out,
        session,
        moments,
        phases.seconds(),
        threads=torch.get_num_threads(),
        interop_threads=torch.get_num_interop_threads(),
        keeps_freed_memory=keeps_memory,
        train_s=phases.total(),
        steps=outcome.steps,
        step_times=step_times(outcome.step_seconds),
        weights_digest=digest,
        parameters=sum(parameter.numel() for parameter in outcome.model.parameters()),
        gradient_sync=outcome.gradient_sync,
        compiled=outcome.compiled,
        gpu=stop_sampling(gpu),
        use=resource_use,
    )
    check_equal_weights(session, digest)
    if session.rank == 0:
        write_result(outcome.epochs, session, out, phases.total(), digest)
    shut_down(session, peers)


def shut_down(session: Session, peers: PeerMonitor) -> None:
    """Finish reporting, and leave the other ranks."""
    session.close()
    peers.stop()
    wait_for_all(session)
    leave(session)


def set_arithmetic(spec: RunSpec) -> None:
    """Fix what decides the last bits: the number of threads, and deterministic algorithms.

    (`training.rank` has checked that `OMP_NUM_THREADS` is the same number: some libraries read that.)
    With `threads: stack`, torch keeps the number that it has found.
    """
    if spec.conditions.threads != "stack":
        torch.set_num_threads(spec.conditions.threads)
        torch.set_num_interop_threads(1)  # nothing here runs operators in parallel
    if spec.work.deterministic and spec.conditions.deterministic:
        be_deterministic()


def be_deterministic() -> None:
    """Have torch take deterministic algorithms alone, from now on."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what cuBLAS needs to be deterministic
    torch.use_deterministic_algorithms(True)
    # By default it would also fill memory that is about to be overwritten: a waste of time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def check_equal_weights(session: Session, digest: str) -> None:
    """Check that every rank ended with the same weights.

    Raises:
        RuntimeError: they did not.
    """
    digests = gather(session, digest)
    if len(set(digests)) > 1:
        found = ", ".join(f"{rank}: {each[:8]}" for rank, each in enumerate(digests))
        raise RuntimeError(
            f"The ranks ended with different weights ({found}); the run's figures are meaningless."
        )


def write_result(
    epochs: list[dict[str, Any]], session: Session, out: Path, train_s: float, digest: str
) -> None:
    """Write the result of the whole run; the last file, so whoever sees it sees all the others."""
    session.report("end", weights_digest=digest)
    write_json(
        out / "result.json",
        {
            "status": "ok",
            "epochs": epochs,
            "weights_digest": digest,
            "validation_count": epochs[-1].get("validation_count"),  # None: not evaluated
            "train_s": train_s,
        },
    )
