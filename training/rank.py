"""What every launcher calls: one rank, whatever happens to it."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from training.files import append_event, write_json
from training.process import process_start
from training.spec import RunSpec, read_spec
from training.stop import STOPPED_STATUS, StopSignal

STOP_GRACE = 5.0  # s


class ThreadsError(RuntimeError):
    """The environment asks for another number of threads than the run."""


def arguments(description: str) -> argparse.ArgumentParser:
    """The arguments that every launcher takes: `--spec`, `--data`, `--out`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--spec", type=Path, required=True, help="the run specification, a JSON file")
    parser.add_argument(
        "--data", type=Path, required=True, help="the prepared data set's own folder, on this node"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for results, shared by all ranks")
    return parser


def launch_rank(description: str, argv: Sequence[str] | None = None) -> None:
    """The whole of a launcher that is itself started once per rank; ends the process if the rank failed."""
    given = arguments(description).parse_args(argv)
    end_if_failed(run_rank(given.spec, given.data, given.out))


def end_if_failed(status: int) -> None:
    """End the process at once if `status` is not 0.

    Not by way of the interpreter's own end: that would take down the process group while gloo's threads may
    still wait for a peer, and hang or abort over it. All that is worth keeping has been written by now.
    """
    if status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run_rank(spec_file: Path, data: Path, out: Path) -> int:
    """Do one rank's part of a run; returns its exit status.

    0 = all is well; 1 = it failed, and `error-<rank>.json` in `out` says why; 143 = it was told to stop.
    """
    started = process_start()
    stop = StopSignal(STOP_GRACE, lambda stopped: report_failure(out, stopped))
    # Models and tokenizers come from files that were staged, never from a network.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    try:
        out.mkdir(parents=True, exist_ok=True)
        spec = read_spec(RunSpec, spec_file)
        check_threads(spec.conditions.threads)
        # Not earlier, so that also a torch that can't be imported leaves an error file.
        from training.job import run_job

        run_job(spec, data, out, stop, started)
    except Exception as error:  # whatever it is, it must reach the run's folder
        if not stop.requested():
            report_failure(out, error)
            return 1
        # Whatever fails after the signal fails because of it: a peer that was told to stop, too, is gone.
        stopped = stop.stopped(first_line(error))
        stopped.__cause__ = error
        report_failure(out, stopped)
        return STOPPED_STATUS
    return 0


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


def first_line(error: Exception) -> str:
    """The first line of what an exception says, or its class where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def report_failure(out: Path, error: Exception) -> None:
    """Say on the error output, in `error-<rank>.json` and (rank 0) in the progress file what went wrong."""
    rank = int(os.environ.get("RANK", "0"))
    message = first_line(error)
    trace = "".join(traceback.format_exception(error))
    sys.stderr.write(f"rank {rank}: {type(error).__name__}: {message}\n{trace}")
    sys.stderr.flush()
    try:
        write_json(
            out / f"error-{rank}.json",
            {
                "rank": rank,
                "host": os.uname().nodename,
                "type": type(error).__name__,
                "message": message,
                "traceback": trace,
            },
        )
        if rank == 0:
            append_event(out / "progress.jsonl", "error", {"rank": rank, "message": message})
    except OSError as unwritable:  # then the error output is all there is
        sys.stderr.write(f"rank {rank}: {out} can't be written to: {unwritable}\n")
