"""The mark that every start of a rank leaves in the run's folder, so that no restart goes unseen."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Final

from training.util.files import append_lines

NAME: Final = "starts-{rank}.jsonl"
"""File of one rank: a line for each start."""

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"  # set by torchrun


def mark_start(out: Path, process_start: float, starter: str | None = None) -> None:
    """Append a mark to this rank's file: when, where, and by whom it was started.

    Args:
        out: folder on storage that all ranks share.
        process_start: when the kernel started this process, Unix seconds by the node's clock.
        starter: who started it, in words, with a number that changes if it does so again; None = torchrun,
            or whoever takes its place.

    Raises:
        OSError: the folder can't be written to.
    """
    by = starter or ("torchrun" if RESTARTS in os.environ else "its launcher")
    restarts = int(os.environ.get(RESTARTS, "0"))
    rank = int(os.environ.get("RANK", "0"))
    mark: dict[str, Any] = {
        "rank": rank,
        "started": process_start,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "boot": BOOT.read_text(encoding="ascii").strip(),
        "by": f"{by}, restart {restarts}" if restarts else by,
    }
    append_lines(out / NAME.format(rank=rank), [mark])
