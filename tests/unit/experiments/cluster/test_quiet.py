"""Runs begin on quiet nodes: disturbances are seen, named, waited for and recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cluster.quiet import NodeLoad, QuietLimits, disturbances, look
from tests.unit.experiments.made_up_workplace import Workplace

LIMITS = {
    "busy_cores": 0.5,
    "steal_percent": 5,
    "gpu_percent": 5,
    "gpu_celsius": 70,
    "wait_s": 0,
    "otherwise": "stop",
}
QUIET = {"busy_cores": 0.1, "steal_percent": 0.0}
BUSY = {"busy_cores": 1.4, "steal_percent": 0.0, "busiest": "make (process 7)", "busiest_cores": 0.9}
SHELL = ["bash", "-c"]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (QUIET, []),
        (BUSY, ["n: 1.4 cores busy (limit 0.5), 0.9 of it make (process 7)"]),
        (QUIET | {"steal_percent": 12.3}, ["n: its host takes 12 % of its time (limit 5)"]),
        (QUIET | {"gpus": [{"percent": 0, "celsius": 81}]}, ["n: GPU 0 has 81 °C (limit 70)"]),
        (QUIET | {"gpus": [{"percent": 97, "celsius": 40}]}, ["n: GPU 0 is 97 % busy (limit 5)"]),
        (QUIET | {"gpu_trouble": "nvidia-smi: it hangs"}, ["n: nvidia-smi: it hangs"]),
        ({"trouble": "it does not answer"}, ["n: it does not answer"]),
    ],
)
def test_what_is_over_its_limit_is_named(seen: dict[str, object], said: list[str]) -> None:
    limits = QuietLimits.model_validate(LIMITS)
    assert disturbances({"n": NodeLoad.model_validate(seen)}, limits) == said


def test_a_process_that_takes_a_core_is_seen_on_a_real_machine() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burning:
        try:
            (seen,) = look({"here": SHELL}).values()
        finally:
            burning.kill()
    assert seen.trouble is None and seen.busiest_cores is not None and seen.busy_cores is not None
    assert 0 < seen.busiest_cores <= seen.busy_cores + 0.1 and seen.busiest is not None


@pytest.mark.parametrize(
    ("shell", "trouble"),
    [
        (["/nowhere/shell"], "it does not answer (FileNotFoundError)"),
        (["sh", "-c", "echo no route >&2; exit 255"], "it could not be sampled (no route)"),
        (["echo"], "its answer could not be read (exec python3 - 2.0)"),
    ],
)
def test_a_node_that_cannot_be_looked_at_says_why(shell: list[str], trouble: str) -> None:
    assert look({"there": shell, "here": SHELL})["there"].trouble == trouble


def watched(workplace: Workplace, seen: dict[str, object], **limits: object) -> Path:
    """A cluster with one sampled node, whose load is read from the file returned."""
    file = workplace.cluster_folder / "seen.json"
    file.write_text(json.dumps(seen))
    shell = workplace.cluster_folder / "shell"
    shell.write_text(f'#!/bin/sh\ncat > /dev/null\necho look >> "{file}.looks"\ncat "{file}"\n')
    shell.chmod(0o755)
    workplace.cluster(quiet=LIMITS | limits, shells={"worker1": [str(shell)]})
    return file


def test_a_run_waits_for_quiet_nodes_and_records_it(workplace: Workplace) -> None:
    file = watched(workplace, BUSY, wait_s=60)
    process = workplace.start("run", "small", "--only", "plain-w1-*")
    assert process.stdout is not None
    for line in process.stdout:
        if "waiting for quiet nodes" in line:
            assert "worker1: 1.4 cores busy (limit 0.5), 0.9 of it make (process 7)" in line
            break
    else:
        pytest.fail("it never waited")
    assert not workplace.records()
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(QUIET))
    beside.rename(file)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    record = workplace.records()["plain-w1/01"]
    assert record.quiet is not None and record.quiet.waited_s > 0 and not record.quiet.disturbed
    assert record.quiet.nodes["worker1"].busy_cores == 0.1
    assert "not quiet" not in " ".join(record.notes)


def test_nodes_that_never_get_quiet_stop_the_matrix_or_are_noted(workplace: Workplace) -> None:
    watched(workplace, BUSY)
    status, output = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 2 and not workplace.records()
    assert "after 0 s the nodes are not quiet (worker1: 1.4 cores busy" in output
    assert workplace.calls()[-1] == "lock free"

    watched(workplace, BUSY, otherwise="note")
    status, output = workplace.run("run", "small", "--only", "plain-w1-*")
    assert status == 0, output
    record = workplace.records()["plain-w1/01"]
    assert record.notes[0].startswith("The nodes were not quiet when it began, after 0 s of waiting: worker1")
