"""What was given to this process: its environment, its limits, how it is scheduled, whom it belongs to."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import stat
from collections import Counter
from pathlib import Path
from typing import Final

from training.util.files import text_of
from training.util.masking import masked

LONGEST: Final = 2000  # characters of a value
POLICIES: Final = {
    getattr(os, name): name.removeprefix("SCHED_").lower()
    for name in ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR")
}
STREAMS: Final = ("stdin", "stdout", "stderr")
OF_STATUS: Final = {
    "CapEff": "capabilities",
    "Cpus_allowed_list": "cores allowed",
    "Mems_allowed_list": "memory nodes allowed",
    "NoNewPrivs": "no new privileges",
    "Seccomp": "seccomp mode",
    "Speculation_Store_Bypass": "speculative store bypass",
    "SpeculationIndirectBranch": "speculative indirect branches",
    "THP_enabled": "huge pages",
}
"""Lines of /proc/self/status, proc(5), by what they say."""


def environment() -> dict[str, str]:
    """The environment's variables; what may be a secret is masked."""
    return {name: _shortened(masked(name, value)) for name, value in sorted(os.environ.items())}


def _shortened(text: str) -> str:
    """The text, or its beginning and a digest of all of it."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return f"{text[:LONGEST]}… (SHA-256 of all: {digest[:12]})"


def limits() -> dict[str, str]:
    """The resource limits of setrlimit(2), soft and hard where they differ; bytes or seconds as there."""
    found = {}
    for name in sorted(name for name in dir(resource) if name.startswith("RLIMIT_")):
        soft, hard = (_limit(value) for value in resource.getrlimit(getattr(resource, name)))
        found[name.removeprefix("RLIMIT_").lower()] = soft if soft == hard else f"{soft}, at most {hard}"
    return found


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def state() -> dict[str, str]:
    """How it is scheduled, what it may do, its open files and its ancestors."""
    policy = os.sched_getscheduler(0)
    lines = (line.partition(":") for line in (text_of(Path("/proc/self/status")) or "").splitlines())
    status = {name: value.strip() for name, _, value in lines}
    found = {
        "scheduler": POLICIES.get(policy, str(policy)),
        "niceness": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "autogroup": text_of(Path("/proc/self/autogroup")),
        "timer slack in ns": text_of(Path("/proc/self/timerslack_ns")),
        "score if memory runs out": text_of(Path("/proc/self/oom_score_adj")),
        "personality": text_of(Path("/proc/self/personality")),
        "started by": " < ".join(_ancestors()),
        "open files": str(len([*Path("/proc/self/fd").iterdir()])),
        **{name: _stream(number) for number, name in enumerate(STREAMS)},
        **{words: status.get(name) for name, words in OF_STATUS.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


def _ancestors() -> list[str]:
    """Names of the processes that it descends from, its parent first, as far as its namespace shows them."""
    found = []
    pid = os.getppid()
    while pid > 0:
        fields = text_of(Path(f"/proc/{pid}/stat"))
        if fields is None:
            break
        # The name, in parentheses, may contain spaces and parentheses.
        name, _, rest = fields.partition("(")[2].rpartition(")")
        found.append(name)
        pid = int(rest.split()[1])
    return found


def _stream(number: int) -> str:
    """What a standard stream is: printing to each costs something else."""
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        return "closed"
    if stat.S_ISCHR(mode):
        return "terminal" if os.isatty(number) else "device"
    kinds = {stat.S_ISFIFO: "pipe", stat.S_ISSOCK: "socket", stat.S_ISREG: "file"}
    return next((name for is_kind, name in kinds.items() if is_kind(mode)), "other")


def threads() -> dict[str, str]:
    """How many threads it has, by their names; digits at the end of a name count the same."""
    names = (text_of(task / "comm") for task in Path("/proc/self/task").iterdir())
    counted = Counter(re.sub(r"[-_:]*\d+$", "", name) for name in names if name)
    return {name: str(number) for name, number in sorted(counted.items())}
