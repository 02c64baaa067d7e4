"""What a rank did in some steps, as torch's profiler saw it: a Chrome trace in the run's folder."""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from torch.profiler import ProfilerAction, ProfilerActivity, profile

from training.session import Session
from training.traced_steps import Trace
from training.util.files import replacing

CHUNK: Final = 2**20  # bytes


@contextmanager
def tracing(wanted: Trace | None, session: Session, run: Path, done: int) -> Iterator[Callable[[], None]]:
    """Trace the wanted steps of this rank; gives what to call after each step.

    The step before the first one warms the profiler up, if this process takes it. Steps carry their numbers
    in the whole training (`ProfilerStep#10`). If the steps are not finished, no trace is written.

    Args:
        wanted: the steps; None = no trace.
        session: this rank's launcher.
        run: the run's folder.
        done: steps done before this process began.

    Raises:
        OSError: the trace can't be written.
    """
    if wanted is None or not _are_ahead(wanted, session.rank, done):
        yield lambda: None
        return
    path = run / wanted.file(session.rank)
    activities = [ProfilerActivity.CPU]
    if session.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    profiler = profile(
        activities=activities,
        schedule=lambda step: _action(wanted, step),
        on_trace_ready=lambda found: _write(found, path),
    )
    profiler.step_num = done
    with profiler:
        profiler.step()
        try:
            yield profiler.step
        except BaseException:
            profiler.on_trace_ready = None  # which leaving would call with a part of the steps
            raise


def _are_ahead(wanted: Trace, rank: int, done: int) -> bool:
    """Whether any of the steps is still to be done; says on this rank's output which are not."""
    if done < wanted.first:
        return True
    some = done < wanted.last
    sys.stderr.write(
        f"rank {rank}: Training goes on after step {done}, so {'not all' if some else 'none'} of "
        f"{wanted.name} can be traced.\n"
    )
    return some


def _action(wanted: Trace, step: int) -> ProfilerAction:
    if wanted.first <= step <= wanted.last:
        return ProfilerAction.RECORD_AND_SAVE if step == wanted.last else ProfilerAction.RECORD
    return ProfilerAction.WARMUP if step == wanted.first - 1 and step else ProfilerAction.NONE


def _write(found: profile, path: Path) -> None:
    with TemporaryDirectory() as folder, replacing(path) as draft:
        plain = Path(folder) / "trace.json"
        found.export_chrome_trace(str(plain))
        # The profiler would pack it line by line, which takes several times as long.
        with plain.open("rb") as content, gzip.open(draft, "wb", compresslevel=5) as packed:
            shutil.copyfileobj(content, packed, CHUNK)
