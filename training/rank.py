"""What every launcher calls: one rank, whatever happens to it."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.errors import (
    PeerError,
    Stopped,
    ThreadsError,
    Yielded,
    explain_failure,
    failed_between_ranks,
    first_line,
)
from training.spec import RunSpec, read_spec
from training.util.files import append_event, write_json
from training.util.process import process_start
from training.util.stop import STOPPED_STATUS, StopSignal

# Torch takes seconds to load, and may fail to: no part of it before `run_rank` can say what went wrong.
if TYPE_CHECKING:
    from training.distributed.liveness import PeerMonitor
    from training.session import Session

STOP_GRACE = 5.0  # s
STOP_GRACE_TO_KEEP = 25.0  # s, where there is a checkpoint to write before the end

_HELD: list[Exception] = []

Begin = Callable[[RunSpec, Path, StopSignal], "Session"]


def arguments(description: str) -> argparse.ArgumentParser:
    """The arguments that every launcher takes: `--spec`, `--data`, `--out`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--spec", type=Path, required=True, help="the run specification, a JSON file")
    parser.add_argument(
        "--data", type=Path, required=True, help="the prepared data set's own folder, on this node"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for results, shared by all ranks")
    return parser


def end_if_failed(status: int) -> None:
    """End the process at once if `status` is not 0.

    Not by way of the interpreter's own end: that would take down the process group while gloo's threads may
    still wait for a peer, and hang or abort over it. All that is worth keeping has been written by now.
    """
    if status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def torchrun_session(spec: RunSpec, out: Path, stop: StopSignal) -> Session:
    """The session of a rank that torchrun, or something like it, started."""
    from training.torchrun import TorchrunSession

    return TorchrunSession(spec, out, stop)


def launch_rank(description: str, argv: Sequence[str] | None = None, begin: Begin = torchrun_session) -> None:
    """The whole of a launcher that is itself started once per rank; ends the process if the rank failed."""
    given = arguments(description).parse_args(argv)
    end_if_failed(run_rank(given.spec, given.data, given.out, begin))


def run_rank(spec_file: Path, data: Path, out: Path, begin: Begin = torchrun_session) -> int:
    """Do one rank's part of a run; returns its exit status.

    0 = all is well, or the slots were asked back by somebody who will go on with the work; 1 = it failed, and
    `error-<rank>.json` in `out` says why; 143 = it was told to stop.

    Args:
        spec_file: the run specification, JSON.
        data: folder of the prepared data set, on this node.
        out: folder on storage that all ranks share.
        begin: makes the session, once everything has been imported.
    """
    started = process_start()
    stop = StopSignal(STOP_GRACE, lambda stopped: report_failure(out, stopped))
    peers: PeerMonitor | None = None
    # Models and tokenizers come from files that were staged, never from a network.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    # GPUs are numbered as the driver numbers them, not by their speed: whoever handed them out did the same.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Of an earlier try, where a stack starts a rank anew: it would be taken for what failed this one.
        (out / error_name()).unlink(missing_ok=True)
        spec = read_spec(RunSpec, spec_file)
        check_threads(spec.conditions.threads)
        if spec.work.keeps_checkpoints:
            stop.grace = STOP_GRACE_TO_KEEP
        # Not earlier, so that also a torch that can't be imported leaves an error file.
        from training.distributed.liveness import PeerMonitor
        from training.job import run_job

        peers = PeerMonitor(lambda gone: _give_up(out, gone))
        run_job(spec, data, out, lambda: begin(spec, out, stop), peers, started)
    except Yielded as yielded:
        if stop.requested():
            return _report_and_tell(out, yielded, stop, None)
        sys.stderr.write(f"The slots are given back: {yielded}\n")
    except Exception as error:  # whatever it is, it must reach the run's folder
        return _report_and_tell(out, error, stop, peers)
    return 0


def _report_and_tell(out: Path, error: Exception, stop: StopSignal, peers: PeerMonitor | None) -> int:
    # The error holds the frames that it went through, and those hold the replica: freed here, it could wait
    # forever for gloo's threads (see `training.distributed.collective.leave`). The process ends soon anyway.
    _HELD.append(error)
    if stop.requested() or isinstance(error, Stopped):
        # Whatever fails after the signal fails because of it: a peer that was told to stop, too, is gone.
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
    # At once: torchrun gives this rank little time once it has seen another one end.
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
    """End the process beside its main thread, which may be stuck."""
    report_failure(out, error)
    end_if_failed(1)


def check_threads(threads: int) -> None:
    """Check that `OMP_NUM_THREADS`, which libraries read when they are loaded, says what the run asks for.

    Raises:
        ThreadsError: it says something else, or nothing.
    """
    found = os.environ.get("OMP_NUM_THREADS")
    if found != str(threads):
        says = f"is {found}" if found is not None else "is not set"
        raise ThreadsError(
            f"The run asks for {threads} threads per rank, but OMP_NUM_THREADS {says}; "
            f"set OMP_NUM_THREADS={threads} in the environment that the launcher gives the rank."
        )


def error_name() -> str:
    """Name of the file that says why this rank failed."""
    return f"error-{int(os.environ.get('RANK', '0'))}.json"


def report_failure(out: Path, error: Exception) -> None:
    """Say on the error output, in `error-<rank>.json` and (rank 0) in the progress file what went wrong."""
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
    except OSError as unwritable:  # then the error output is all there is
        sys.stderr.write(f"rank {rank}: {out} can't be written to: {unwritable}\n")
