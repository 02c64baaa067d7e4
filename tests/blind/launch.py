"""Launches of one simulated job on this machine, by torchrun with two ranks, and the times of their runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from tests.blind.proxy import proxy_to
from training.spec import RunSpec
from training.util.network import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
RANKS: Final = 2
PATIENCE: Final = 300.0  # s
CGROUPS: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000  # of a cgroup's share of processor time
IN_RANK: Final = ("tokenizing", "printed_lines", "hook", "threads", "hidden")
IN_STEPS: Final = ("printed_lines", "hook", "hidden")  # whose waits are all that they cost a step


class LaunchFailedError(RuntimeError):
    """A run that did not end well; its text has the last lines that it wrote."""


class UnavailableError(RuntimeError):
    """This machine can't do what a launch needs; its text says what, in one sentence."""


@dataclass(frozen=True)
class Launch:
    """How a job is launched: a dose of each factor. 0 = as the plain launch has it."""

    cgroup: float = 0.0  # cores' worth of processor time that the launch may take; 0 = no limit
    tokenizing: float = 0.0  # ms that a batch takes longer to tokenise in the loop; 0 = tokenised before
    printed_lines: float = (
        0.0  # ms that standard output takes for a line in each step; 0 = nothing is printed
    )
    hook: float = 0.0  # ms in a hook of the optimiser
    allocator: float = 0.0  # ms for each block as large as the weights
    threads: float = 0.0  # ms for which another thread of the rank holds the interpreter, again and again
    environment: float = 0.0  # 1 = Python's bytecode is missing
    niceness: float = 0.0  # added to that of the plain launch
    evaluation: float = 0.0  # 1 = every rank evaluates everything
    proxy: float = 0.0  # ms for which a proxy before the ranks' meeting point holds each message
    hidden: float = 0.0  # ms for the copy of each batch to the device, which no factor covers

    def equalised(self, names: frozenset[str]) -> Launch:
        """The same with some factors as the plain launch has them."""
        return replace(self, **dict.fromkeys(names, 0.0))


FACTORS: Final = tuple(field.name for field in fields(Launch) if field.name != "hidden")
"""What can be equalised: all but `hidden`."""


@dataclass(frozen=True)
class Job:
    """The job that both launches do."""

    spec: RunSpec
    data: Path  # the prepared data set


@dataclass(frozen=True)
class Outcome:
    """What a run took."""

    times: dict[str, float]
    """Rank 0's and the launcher's, by measure: `step_ms` is a step's mean; `fixed_s` the rest of train_s;
    `launch_s` all that is outside it."""
    waited_ms: dict[str, float]
    """What the waits of a dose really took, in a step: of each wait the slower rank's, as the other waits."""


def run(launch: Launch, job: Job, seed: int) -> Outcome:
    """Run the job once.

    Raises:
        LaunchFailedError: torchrun did not end well.
        UnavailableError: this machine can't make the launch.
    """
    spec = _with_conditions(job.spec, launch, seed)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainbed-blind-")))
        file, out = place / "spec.json", place / "out"
        file.write_text(spec.model_dump_json(), encoding="utf-8")
        port = free_port()
        meeting = stack.enter_context(proxy_to(port, launch.proxy / 1000)) if launch.proxy else port
        before = [*_in_cgroup(stack, launch.cgroup, place.name), "nice", "-n", f"{launch.niceness:.0f}"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
        torchrun += ["--master-addr", "127.0.0.1", "--master-port", str(port), "--no-python"]
        doses = {name: dose for name in IN_RANK if (dose := asdict(launch)[name])}
        rank = ["env", f"MASTER_PORT={meeting}", *_preloaded(launch.allocator, place)]
        rank += [sys.executable, "-m", "tests.blind.rank", json.dumps(doses), str(place)]
        rank += ["--spec", str(file), "--data", str(job.data), "--out", str(out)]
        began = time.perf_counter()
        done = subprocess.run(
            [*before, *torchrun, *rank],
            cwd=ROOT,
            env=_environment(launch, place),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        wall = time.perf_counter() - began
        if done.returncode:
            raise LaunchFailedError(f"torchrun ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return Outcome(_times(out, wall), _waited(place, job.spec.work.steps))


def _waited(place: Path, steps: int) -> dict[str, float]:
    """The mean of a step's waits in ms, by factor."""
    by_factor: dict[str, list[list[float]]] = {}
    for file in sorted(place.glob("*-[0-9].json")):
        took: list[float] = json.loads(file.read_text(encoding="utf-8"))
        by_factor.setdefault(file.stem.rsplit("-", 1)[0], []).append(took)
    return {
        name: sum(map(max, zip_longest(*ranks, fillvalue=0.0))) / steps * 1000
        for name, ranks in by_factor.items()
        if name in IN_STEPS
    }


def _times(out: Path, wall: float) -> dict[str, float]:
    rank, result = _object(out / "rank-0.json"), _object(out / "result.json")
    steps = sum(epoch["seconds"] for epoch in result["epochs"]) - rank["phases"]["evaluation"]
    return {
        "step_ms": steps / rank["steps"] * 1000,
        "fixed_s": rank["train_s"] - steps,
        "launch_s": wall - rank["train_s"],
    }


def _object(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def _with_conditions(spec: RunSpec, launch: Launch, seed: int) -> RunSpec:
    chosen = {
        "tokenizing": "in_loop" if launch.tokenizing else "before",
        "printed_lines": 1 if launch.printed_lines else 0,
        "evaluation": "replicated" if launch.evaluation else "sharded",
    }
    given = spec.model_dump()
    changed = {"work": given["work"] | {"seed": seed}, "conditions": given["conditions"] | chosen}
    return RunSpec.model_validate(given | changed)


def _environment(launch: Launch, place: Path) -> dict[str, str]:
    cold = {"PYTHONPYCACHEPREFIX": str(place / "bytecode")} if launch.environment else {}
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"} | cold


def _preloaded(dose_ms: float, place: Path) -> list[str]:
    """Settings of the ranks' environment that slow their allocator down, by a library made for it."""
    if not dose_ms:
        return []
    library = place / "slow_allocator.so"
    source = Path(__file__).parent / "slow_allocator.c"
    try:
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnavailableError(f"A slower allocator needs a C compiler here, named cc: {error}") from error
    return [f"LD_PRELOAD={library}", f"SLOW_ALLOCATOR_US={dose_ms * 1000:.0f}"]


def _in_cgroup(stack: ExitStack, cores: float, name: str) -> list[str]:
    """What to write before a command so that it runs in a cgroup with this much processor time."""
    if not cores:
        return []
    folder = stack.enter_context(_cgroup(cores, name))
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(folder)]


@contextmanager
def _cgroup(cores: float, name: str) -> Iterator[Path]:
    """A cgroup of version 1 or 2 below the root, for as long as the context lasts."""
    quota = f"{cores * PERIOD_US:.0f}"
    if (CGROUPS / "cpu").is_dir():
        folder, limits = (
            CGROUPS / "cpu" / name,
            {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": quota},
        )
    else:
        folder, limits = CGROUPS / name, {"cpu.max": f"{quota} {PERIOD_US}"}
    try:
        folder.mkdir()
        for file, limit in limits.items():
            (folder / file).write_text(limit, encoding="ascii")
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        raise UnavailableError(
            f"A throttled cgroup can't be made here, {folder}: {error.strerror}."
        ) from error
    try:
        yield folder
    finally:
        folder.rmdir()
