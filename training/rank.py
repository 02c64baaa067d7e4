"""What every launcher calls: runs one rank, and reports whatever happens to it."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.bits import pin_kernels
from training.errors import (
    LaunchError,
    PeerError,
    Stopped,
    ThreadsError,
    Yielded,
    explain_failure,
    failed_between_ranks,
    first_line,
)
from training.spec import RunSpec, read_spec
from training.starts import mark_start
from training.util.files import append_event, write_json
from training.util.process import process_start
from training.util.stop import STOPPED_STATUS, StopSignal

# Torch takes seconds to load, and may fail to: nothing imports it until `run_rank` can report that.
if TYPE_CHECKING:
    from training.distributed.liveness import PeerMonitor
    from training.session import Session

STOP_GRACE = 5.0  # s
STOP_GRACE_TO_KEEP = 25.0  # s, if there is a checkpoint to write first, or a program of its own to end

_HELD: list[Exception] = []

Begin = Callable[[RunSpec, Path, StopSignal], "Session"]


def arguments(description: str) -> argparse.ArgumentParser:
    """The arguments that every launcher takes: `--spec`, `--data`, `--out`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--spec", type=Path, required=True, help="the run specification, a JSON file")
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of the prepared data set, on this node"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for results, shared by all ranks")
    return parser


def end_if_failed(status: int) -> None:
    """Exit immediately if `status` is not 0.

    The interpreter's normal shutdown would destroy the process group while gloo's threads may still wait for
    a peer, and hang or abort over it. Everything worth keeping has been written by now.
    """
    if status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def torchrun_session(spec: RunSpec, out: Path, stop: StopSignal) -> Session:
    """The session of a rank started by torchrun, or by something like it."""
    from training.torchrun import TorchrunSession

    return TorchrunSession(spec, out, stop)


def launch_rank(
    description: str,
    argv: Sequence[str] | None = None,
    begin: Begin = torchrun_session,
    starter: str | None = None,
) -> None:
    """The whole of a launcher that is started once per rank; exits if the rank failed."""
    given = arguments(description).parse_args(argv)
    end_if_failed(run_rank(given.spec, given.data, given.out, begin, starter))


def run_rank(
    spec_file: Path, data: Path, out: Path, begin: Begin = torchrun_session, starter: str | None = None
) -> int:
    """Do one rank's part of a run; returns its exit code.

    0 = success, or the launcher asked for the slots back and will resume the work later; 1 = it failed, and
    `error-<rank>.json` in `out` says why; 143 = it was told to stop.

    Args:
        spec_file: the run specification, JSON.
        data: folder of the prepared data set, on this node.
        out: folder on storage that all ranks share.
        begin: creates the session, once everything has been imported.
        starter: who started this process, for the mark of its start (`training.starts`).
    """
    started = process_start()
    stop = StopSignal(STOP_GRACE, lambda stopped: report_failure(out, stopped))
    peers: PeerMonitor | None = None
    # Models and tokenizers come from staged files, never from a network.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    # Number GPUs as the driver does, not by their speed: whatever assigned them did the same.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        out.mkdir(parents=True, exist_ok=True)
        mark_start(out, started, starter)
        # From an earlier attempt, if a stack restarts a rank: it would be taken for this one's failure.
        (out / error_name()).unlink(missing_ok=True)
        spec = read_spec(RunSpec, spec_file)
        check_program(spec)
        check_threads(spec.conditions.threads)
        check_environment(spec.conditions.rank_environment)
        pin_kernels(spec.conditions.bits)
        if spec.work.keeps_checkpoints or spec.work.data.has_own_loop:
            stop.grace = STOP_GRACE_TO_KEEP
        # Not earlier, so that a torch that can't be imported leaves an error file, too.
        from training.assignment import Assignment
        from training.distributed.liveness import PeerMonitor

        if spec.work.data.has_own_loop:
            from training.program import run_program as run
        else:
            from training.job import run_job as run
            from training.workload import workload_class

            # So that all it imports is imported before any timer of training starts.
            workload_class(spec.work)
            if spec.conditions.scoring == "evaluate":
                import training.metrics.library  # noqa: F401
        peers = PeerMonitor(lambda gone: _give_up(out, gone))
        run(Assignment(spec, data, out, lambda: begin(spec, out, stop), peers, started))
    except Yielded as yielded:
        if stop.requested():
            return _report_and_tell(out, yielded, stop, None)
        sys.stderr.write(f"Giving the slots back: {yielded}\n")
    except Exception as error:  # whatever it is, it must reach the run's folder
        return _report_and_tell(out, error, stop, peers)
    return 0


def _report_and_tell(out: Path, error: Exception, stop: StopSignal, peers: PeerMonitor | None) -> int:
    # The error's traceback holds frames, and those hold the replica: freeing it here could wait forever for
    # gloo's threads (see `training.distributed.collective.leave`). The process exits soon anyway.
    _HELD.append(error)
    if stop.requested() or isinstance(error, Stopped):
        # Whatever fails after the signal fails because of it: a peer that was also told to stop is gone.
        stopped = (
            stop.stopped(first_line(error))
            if stop.requested()
            else Stopped(f"Another rank was told to stop: {error}")
        )
        stopped.__cause__ = error
        if peers:
            peers.announce_failure(str(stopped))
        report_failure(out, stopped)
        return STOPPED_STATUS
    # Immediately: once one rank has exited, torchrun gives the others little time.
    report_failure(out, error)
    if peers and not failed_between_ranks(error):
        peers.announce_failure(f"{type(error).__name__}: {explain_failure(error)}")
    elif peers and (gone := peers.describe_lost()):
        found = PeerError(gone)
        found.__cause__ = error
        report_failure(out, found)
        peers.announce_failure(gone)
    return 1


def _give_up(out: Path, error: Exception) -> None:
    """End the process from another thread, because the main one may be stuck."""
    report_failure(out, error)
    end_if_failed(1)


def check_program(spec: RunSpec) -> None:
    """Check that the run is to train.

    Raises:
        LaunchError: it is to start an empty program in the place of training.
    """
    if spec.bare:
        raise LaunchError(
            "The run is to start an empty program (conditions.program), and this is training; its stack must "
            "start training/launchers/empty.py, or not declare program empty."
        )


def check_threads(threads: int | str) -> None:
    """Check that `OMP_NUM_THREADS`, which libraries read when they are loaded, is what the run asks for.

    Whatever it is, is right where threads are the stack's own (`stack`).

    Raises:
        ThreadsError: it differs, or is not set.
    """
    found = os.environ.get("OMP_NUM_THREADS")
    if threads != "stack" and found != str(threads):
        says = f"is {found}" if found is not None else "is not set"
        raise ThreadsError(
            f"The run asks for {threads} threads per rank, but OMP_NUM_THREADS {says}; "
            f"set OMP_NUM_THREADS={threads} in the environment that the launcher gives the rank."
        )


def check_environment(wanted: Mapping[str, str]) -> None:
    """Check that the variables which the run asks for have reached this rank.

    Raises:
        LaunchError: one is missing, or has another value.
    """
    for name, value in wanted.items():
        found = os.environ.get(name)
        if found != value:
            says = f"is {found}" if found is not None else "is not set"
            raise LaunchError(
                f"The run asks for {name}={value} in the environment of every rank, but {name} {says}; "
                "its stack must pass rank_environment on."
            )


def error_name() -> str:
    """Name of the file that says why this rank failed."""
    return f"error-{int(os.environ.get('RANK', '0'))}.json"


def report_failure(out: Path, error: Exception) -> None:
    """Report what went wrong on stderr, in `error-<rank>.json` and (rank 0) in the progress file."""
    rank = int(os.environ.get("RANK", "0"))
    message = explain_failure(error)
    trace = "".join(traceback.format_exception(error))
    sys.stderr.write(f"rank {rank}: {type(error).__name__}: {message}\n{trace}")
    sys.stderr.flush()
    facts: dict[str, Any] = {
        "rank": rank,
        "host": os.uname().nodename,
        "type": type(error).__name__,
        "message": message,
        "traceback": trace,
    }
    try:
        write_json(out / error_name(), facts)
        if rank == 0:
            append_event(out / "progress.jsonl", "error", {"rank": rank, "message": message})
    except OSError as unwritable:  # then stderr is all there is
        sys.stderr.write(f"rank {rank}: {out} can't be written to: {unwritable}\n")
