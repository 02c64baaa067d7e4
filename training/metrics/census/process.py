"""What was given to a process: its environment, its limits, how it is scheduled, whom it belongs to.

`of` is its name below /proc: `self`, or the number of another one of the same user.
"""

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
TERMINALS: Final = frozenset({4, 5, *range(136, 144)})  # major numbers of devices, as in devices.txt of Linux
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


def environment(of: str = "self") -> dict[str, str]:
    """The environment's variables (of another process: as it was started); what may be a secret is masked."""
    given = dict(os.environ) if of == "self" else _started_with(of)
    return {name: _shortened(masked(name, value)) for name, value in sorted(given.items())}


def _started_with(of: str) -> dict[str, str]:
    content = Path("/proc", of, "environ").read_bytes().decode(errors="replace")
    return dict(each.split("=", 1) for each in content.split("\0") if "=" in each)


def number_of(of: str) -> int:
    """The process's number; 0, which stands for this one in system calls, for `self`."""
    return 0 if of == "self" else int(of)


def _shortened(text: str) -> str:
    """The text, or its beginning and a digest of all of it."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return f"{text[:LONGEST]}… (SHA-256 of all: {digest[:12]})"


def limits(of: str = "self") -> dict[str, str]:
    """The resource limits of setrlimit(2), soft and hard where they differ; bytes or seconds as there."""
    found = {}
    for name in sorted(name for name in dir(resource) if name.startswith("RLIMIT_")):
        both = resource.prlimit(number_of(of), getattr(resource, name))
        soft, hard = (_limit(value) for value in both)
        found[name.removeprefix("RLIMIT_").lower()] = soft if soft == hard else f"{soft}, at most {hard}"
    return found


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def state(of: str = "self") -> dict[str, str]:
    """How it is scheduled, what it may do, its open files and its ancestors."""
    folder = Path("/proc", of)
    policy = os.sched_getscheduler(number_of(of))
    lines = (line.partition(":") for line in (text_of(folder / "status") or "").splitlines())
    status = {name: value.strip() for name, _, value in lines}
    found = {
        "scheduler": POLICIES.get(policy, str(policy)),
        "niceness": str(os.getpriority(os.PRIO_PROCESS, number_of(of))),
        "autogroup": text_of(folder / "autogroup"),
        "timer slack in ns": text_of(folder / "timerslack_ns"),
        "score if memory runs out": text_of(folder / "oom_score_adj"),
        "personality": text_of(folder / "personality"),
        "started by": " < ".join(_ancestors(of)),
        "open files": str(len([*(folder / "fd").iterdir()])),
        **{name: _stream(folder / "fd" / str(number)) for number, name in enumerate(STREAMS)},
        **{words: status.get(name) for name, words in OF_STATUS.items()},
    }
    return {name: value for name, value in found.items() if value is not None}


def _ancestors(of: str) -> list[str]:
    """Names of the processes that it descends from, its parent first, as far as its namespace shows them."""
    found = []
    fields = text_of(Path("/proc", of, "stat"))
    while fields is not None:
        # The name, in parentheses, may contain spaces and parentheses.
        name, _, rest = fields.partition("(")[2].rpartition(")")
        found.append(name)
        fields = text_of(Path("/proc", rest.split()[1], "stat"))
    return found[1:]  # the first is its own


def _stream(descriptor: Path) -> str:
    """What a standard stream is: printing to each costs something else."""
    try:
        found = descriptor.stat()
    except OSError:
        return "closed"
    mode = found.st_mode
    if stat.S_ISCHR(mode):
        return "terminal" if os.major(found.st_rdev) in TERMINALS else "device"
    kinds = {stat.S_ISFIFO: "pipe", stat.S_ISSOCK: "socket", stat.S_ISREG: "file"}
    return next((name for is_kind, name in kinds.items() if is_kind(mode)), "other")


def threads(of: str = "self") -> dict[str, str]:
    """How many threads it has, by their names; digits at the end of a name count the same."""
    names = (text_of(task / "comm") for task in Path("/proc", of, "task").iterdir())
    counted = Counter(re.sub(r"[-_:]*\d+$", "", name) for name in names if name)
    return {name: str(number) for name, number in sorted(counted.items())}
