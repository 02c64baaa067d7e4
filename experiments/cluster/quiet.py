"""Waiting for quiet nodes before a run, and what counts as quiet."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from experiments.util.models import FrozenModel

PROBE: Final = Path(__file__).with_name("probe.py")
LOOK_S: Final = 2.0  # how long a node is sampled
WORTH_A_WORD: Final = 0.1  # cores; most of a machine's processes are invisible from inside a container
ANSWER_S: Final = 30.0  # timeout of a node's answer


class QuietLimits(FrozenModel):
    """An inventory's limits for quiet nodes (`quiet_*`)."""

    busy_cores: Annotated[float, Field(gt=0)]  # of a node's cores, averaged over the sample
    steal_percent: Annotated[float, Field(gt=0, le=100)]  # taken by the machine's own host
    gpu_percent: Annotated[float, Field(gt=0, le=100)]
    gpu_celsius: Annotated[float, Field(gt=0)]
    wait_s: Annotated[float, Field(ge=0)]
    otherwise: Literal["stop", "note"]  # after that wait: stop the matrix, or begin and note it


class GpuLoad(FrozenModel):
    """A GPU's load when it was sampled."""

    percent: float
    celsius: float


class NodeLoad(FrozenModel):
    """A node's load when it was sampled; the other fields are empty if `trouble` says why."""

    busy_cores: float | None = None
    steal_percent: float | None = None
    busiest: str | None = None  # the process that took most, as far as the node sees it
    busiest_cores: float | None = None
    gpus: list[GpuLoad] = Field(default_factory=list)
    gpu_trouble: str | None = None
    trouble: str | None = None


class Quiet(FrozenModel):
    """How quiet the nodes were when a run began."""

    waited_s: Annotated[float, Field(ge=0)]
    nodes: dict[str, NodeLoad]
    disturbed: list[str]  # what was not quiet, a phrase each; empty if everything was


def look(shells: Mapping[str, Sequence[str]]) -> dict[str, NodeLoad]:
    """The load of every node, sampled on all of them together for `LOOK_S`.

    Args:
        shells: for each node, the command that runs a line of shell on it.
    """
    source = PROBE.read_text(encoding="utf-8")
    with ThreadPoolExecutor(max_workers=min(32, len(shells))) as pool:
        seen = pool.map(lambda shell: _look_at(shell, source), shells.values())
        return dict(zip(shells, seen, strict=True))


def _look_at(shell: Sequence[str], source: str) -> NodeLoad:
    try:
        done = subprocess.run(
            [*shell, f"exec python3 - {LOOK_S}"],
            input=source,
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
            process_group=0,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return NodeLoad(trouble=f"it does not answer ({type(error).__name__})")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        return NodeLoad(trouble=f"it could not be sampled ({last})")
    try:
        return NodeLoad.model_validate_json(done.stdout)
    except ValidationError:
        return NodeLoad(trouble=f"its answer could not be read ({done.stdout.strip():.80})")


def disturbances(nodes: Mapping[str, NodeLoad], limits: QuietLimits) -> list[str]:
    """A phrase for everything that is over its limit, with the limit."""
    found = []
    for name, seen in nodes.items():
        if seen.trouble is not None:
            found.append(f"{name}: {seen.trouble}")
        if seen.busy_cores is not None and seen.busy_cores > limits.busy_cores:
            who = ""
            if seen.busiest is not None and seen.busiest_cores and seen.busiest_cores >= WORTH_A_WORD:
                who = f", {seen.busiest_cores:.1f} of it {seen.busiest}"
            found.append(f"{name}: {seen.busy_cores:.1f} cores busy (limit {limits.busy_cores:g}){who}")
        if seen.steal_percent is not None and seen.steal_percent > limits.steal_percent:
            taken = f"{seen.steal_percent:.0f} % of its time (limit {limits.steal_percent:g})"
            found.append(f"{name}: its host takes {taken}")
        for at, gpu in enumerate(seen.gpus):
            if gpu.percent > limits.gpu_percent:
                found.append(f"{name}: GPU {at} is {gpu.percent:.0f} % busy (limit {limits.gpu_percent:g})")
            if gpu.celsius > limits.gpu_celsius:
                found.append(f"{name}: GPU {at} has {gpu.celsius:.0f} °C (limit {limits.gpu_celsius:g})")
        if seen.gpu_trouble is not None:
            found.append(f"{name}: {seen.gpu_trouble}")
    return found


def wait_for_quiet(
    shells: Mapping[str, Sequence[str]], limits: QuietLimits, tell: Callable[[str], None]
) -> Quiet:
    """Samples the nodes until they are quiet, or for as long as the limits allow.

    Args:
        shells: for each node, the command that runs a line of shell on it.
        limits: what counts as quiet.
        tell: called with the disturbances after each sample that showed any; may raise to end the wait.
    """
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        nodes = look(shells)
        disturbed = disturbances(nodes, limits)
        if not disturbed or time.monotonic() - began >= limits.wait_s:
            return Quiet(waited_s=round(looked - began, 3), nodes=nodes, disturbed=disturbed)
        tell("; ".join(disturbed))
        # Pace the retries: a node that can't be reached may fail immediately.
        time.sleep(max(0.0, LOOK_S - (time.monotonic() - looked)))
