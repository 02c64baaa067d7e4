"""Launches of one job on this machine, by torchrun with two ranks, and the times of their runs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal

from experiments.analysis.attribution import Measure, times_of
from tests.blind.bytecode import lacking
from tests.blind.proxy import proxy_to
from training.spec import RunSpec
from training.util.network import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
RANKS: Final = 2
STEPS: Final = 150
STEP_MS: Final = 8.0
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
    environment: float = 0.0  # s that a rank compiles modules whose bytecode is missing
    niceness: float = 0.0  # added to that of the plain launch
    evaluation: float = 0.0  # samples of the validation split, all of which every rank evaluates
    proxy: float = 0.0  # ms for which a proxy before the ranks' meeting point holds each message
    hidden: float = 0.0  # ms for the copy of each batch to the device, which no factor covers

    def equalised(self, names: frozenset[str]) -> Launch:
        """The same with some factors as the plain launch has them."""
        return replace(self, **dict.fromkeys(names, 0.0))


FACTORS: Final = tuple(field.name for field in fields(Launch) if field.name != "hidden")
"""What can be equalised: all but `hidden`."""

Kind = Literal["simulated", "null-step"]
FACTORS_OF: Final[Mapping[Kind, tuple[str, ...]]] = {
    "simulated": FACTORS,
    "null-step": ("cgroup", "printed_lines", "threads", "environment", "niceness"),
}
"""Those that can change a job; ranks of a null step have no data and no optimiser, and don't meet."""


@dataclass(frozen=True)
class Job:
    """The job that both launches do."""

    kind: Kind
    bytecode: Path  # of all modules that its runs import
    spec: RunSpec | None = None  # None: a null step, which has none
    data: Path | None = None  # the prepared data set


@dataclass(frozen=True)
class Outcome:
    """What a run took."""

    times: dict[Measure, float]
    """Rank 0's and the launcher's, as reports measure those of records."""
    waited_ms: dict[str, float]
    """What the waits of a dose really took, in a step: of each wait that of the rank that decides."""
    training_processor_s: float  # of both ranks, in train_s
    launch_processor_s: float  # all else that the launch took
    sample_s: float | None  # that a rank takes to evaluate a sample; None: it evaluates none


def ensure_possible(launch: Launch) -> None:
    """Check that this machine can make a launch.

    Raises:
        UnavailableError: it can't.
    """
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainbed-blind-")))
        _in_cgroup(stack, launch.cgroup, place.name)
        _preloaded(launch.allocator, place)


def warm_up(job: Job) -> None:
    """Run the job so that everything is read once, and the bytecode of what its runs import is there.

    Raises:
        LaunchFailedError: torchrun did not end well.
    """
    launches = [Launch()] if job.kind == "null-step" else [Launch(), Launch(tokenizing=0.001)]
    for launch in launches:
        run(launch, job, seed=1, keep_bytecode=True)


def run(launch: Launch, job: Job, seed: int, *, keep_bytecode: bool = False) -> Outcome:
    """Run the job once; with `keep_bytecode`, the bytecode of modules that has none yet is kept.

    Raises:
        LaunchFailedError: torchrun did not end well.
        UnavailableError: this machine can't make the launch.
    """
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainbed-blind-")))
        out = place / "out"
        out.mkdir()
        port = free_port()
        meeting = stack.enter_context(proxy_to(port, launch.proxy / 1000)) if launch.proxy else port
        before = [*_in_cgroup(stack, launch.cgroup, place.name), "nice", "-n", f"{launch.niceness:.0f}"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
        torchrun += ["--master-addr", "127.0.0.1", "--master-port", str(port), "--no-python"]
        rank = ["env", f"MASTER_PORT={meeting}", *_preloaded(launch.allocator, place), sys.executable]
        rank += ["-m", *_rank(launch, job, seed, place, out)]
        spent, began = _children_s(), time.perf_counter()
        done = subprocess.run(
            [*before, *torchrun, *rank],
            cwd=ROOT,
            env=_environment(job.bytecode, launch, keep_bytecode=keep_bytecode),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        wall, spent = time.perf_counter() - began, _children_s() - spent
        if done.returncode:
            raise LaunchFailedError(f"torchrun ended with {done.returncode}:\n{done.stdout[-3000:]}")
        ranks = [_object(out / f"rank-{rank}.json") for rank in range(RANKS)]
        training = sum(_processor_s(each) for each in ranks)
        return Outcome(
            times=_times(job, ranks[0], out, wall),
            waited_ms=_waited(place, together=job.spec is not None),
            training_processor_s=training,
            launch_processor_s=spent - training,
            sample_s=_sample_s(job, ranks[0], launch),
        )


def _rank(launch: Launch, job: Job, seed: int, place: Path, out: Path) -> list[str]:
    """A rank's module with its arguments."""
    doses = json.dumps({name: dose for name in IN_RANK if (dose := asdict(launch)[name])})
    if job.spec is None:
        lines = "1" if launch.printed_lines else "0"
        steps = ["--steps", str(STEPS), "--step-ms", str(STEP_MS), "--lines", lines]
        return ["tests.blind.null_step", doses, str(place), str(out), *steps]
    file = place / "spec.json"
    file.write_text(_with_conditions(job.spec, launch, seed).model_dump_json(), encoding="utf-8")
    given = ["--spec", str(file), "--data", str(job.data), "--out", str(out)]
    return ["tests.blind.rank", doses, str(place), *given]


def _waited(place: Path, *, together: bool) -> dict[str, float]:
    """The mean of a step's waits in ms, by factor: the slower rank's if ranks are together, or rank 0's."""
    by_factor: dict[str, list[list[float]]] = {}
    for file in sorted(place.glob("*-[0-9].json")):
        took: list[float] = json.loads(file.read_text(encoding="utf-8"))
        by_factor.setdefault(file.stem.rsplit("-", 1)[0], []).append(took)
    return {
        name: sum(map(max, zip_longest(*(ranks if together else ranks[:1]), fillvalue=0.0))) / STEPS * 1000
        for name, ranks in by_factor.items()
        if name in IN_STEPS
    }


def _times(job: Job, rank: dict[str, Any], out: Path, wall: float) -> dict[Measure, float]:
    if job.spec is None:
        in_steps = rank["in_steps_s"]
    else:
        result = _object(out / "result.json")
        in_steps = sum(epoch["seconds"] for epoch in result["epochs"]) - rank["phases"]["evaluation"]
    return times_of(rank["train_s"], rank["steps"], in_steps, wall)


def _sample_s(job: Job, rank: dict[str, Any], launch: Launch) -> float | None:
    if job.spec is None:
        return None
    samples = job.spec.work.data.validation / (1 if launch.evaluation else RANKS)
    seconds: float = rank["phases"]["evaluation"] / samples
    return seconds


def _processor_s(rank: dict[str, Any]) -> float:
    if "processor_s" in rank:
        own: float = rank["processor_s"]
        return own
    used = rank["use"]["cpu"]
    seconds: float = used["user_s"] + used["system_s"]
    return seconds


def _children_s() -> float:
    """Processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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


def _environment(bytecode: Path, launch: Launch, *, keep_bytecode: bool) -> dict[str, str]:
    there = lacking(bytecode, launch.environment) if launch.environment else bytecode
    own = {"PYTHONPYCACHEPREFIX": str(there), "PYTHONDONTWRITEBYTECODE": "" if keep_bytecode else "1"}
    return os.environ | {"OMP_NUM_THREADS": "1"} | own


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
