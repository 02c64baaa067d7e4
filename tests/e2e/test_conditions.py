"""Other ways of launching and feeding the same training: the same weights, the same pinning, nothing left."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

import pytest

from tests.e2e.matrices import NODES, SMALL, STACKS, nothing_runs, records
from tests.e2e.testbeds import Testbed

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("provisioned")]

STOCK: dict[str, Any] = {
    **{"tokenizing": "before", "reporting": "epoch", "runtime": "stack", "launcher": "stack"},
    "threads": 1,
}
#: Each way's stack, and how it differs from the stacks' own way.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("ddp", {}),
    "native": ("ddp", {"runtime": "native"}),
    "no torchrun": ("ddp", {"runtime": "native", "launcher": "none"}),
    "no torchrun in a container": ("ddp", {"launcher": "none"}),
    "in the loop": ("spark", {"tokenizing": "in_loop"}),
    "every step": ("determined", {"reporting": "step"}),
    "texts": ("ddp", {"tokenizing": "in_run"}),
    "texts by Spark": ("spark", {"tokenizing": "in_run"}),
    # Every worker has one core, which is how many threads there are then, too.
    **{f"threads of {stack}": (stack, {"threads": "stack"}) for stack in ("ddp", "spark", "determined")},
}
TRAIN, VALIDATION = 600, 200  # samples


def test_the_ways_of_a_ladder_end_with_the_same_weights(testbed: Testbed) -> None:
    axes = {name: [value] for name, value in STOCK.items()}
    rows = [
        {"stack": stack, "workers": 2, "epochs": 1, "seed": 1, **STOCK, **changed}
        for stack, changed in WAYS.values()
    ]
    ways = {"stack": ["ddp"], "workers": [2], "epochs": [1], "seed": [1], **axes}
    matrix = testbed.root / "ways.yml"
    text = SMALL[: SMALL.index("axes:")].replace("name: small", "name: ways")
    text = text.replace("train: 1200", f"train: {TRAIN}")
    order = {"arrangement": "written", "warm_ups": False}
    for name, value in (("axes", ways), ("rows", rows[1:]), ("order", order)):
        text += f"{name}: {json.dumps(value)}\n"
    matrix.write_text(text, encoding="utf-8")
    testbed.make("matrix", f"MATRIX={matrix}")

    made = by_way(testbed)
    assert {record["status"] for record in made.values()} == {"ok"}
    assert len({record["weights_digest"] for record in made.values()}) == 1
    for record in made.values():
        ranks = {(rank["node"], tuple(rank["affinity"]), rank["uid"]) for rank in record["ranks"]}
        assert ranks == {
            (rank["node"], tuple(rank["affinity"]), rank["uid"]) for rank in made["stock"]["ranks"]
        }
    commands = {name: " ".join(record["launch"]["command"]) for name, record in made.items()}
    assert "docker run" in commands["stock"] and "torchrun" in commands["stock"]
    assert "docker" not in commands["native"] and "torchrun" in commands["native"]
    assert "docker" not in commands["no torchrun"] and "torchrun" not in commands["no torchrun"]
    assert "docker run" in commands["no torchrun in a container"]
    assert "torchrun" not in commands["no torchrun in a container"]
    found = {name: {rank["omp_num_threads"] for rank in record["ranks"]} for name, record in made.items()}
    # Spark sets the variable by itself, to the cores of a task; torchrun does not for one rank.
    assert [found[f"threads of {stack}"] for stack in ("ddp", "spark")] == [{None}, {"1"}]
    assert all(rank["threads"] == 1 for record in made.values() for rank in record["ranks"])
    assert nothing_runs(testbed)


def by_way(testbed: Testbed) -> dict[str, dict[str, Any]]:
    """The records of the matrix above, by the name of their way."""
    found = {key(record): record for record in records(testbed, "ways")}
    return {name: found[stack, tuple((STOCK | changed).values())] for name, (stack, changed) in WAYS.items()}


def test_runs_that_begin_with_texts_say_who_made_tokens_of_them(testbed: Testbed) -> None:
    made = by_way(testbed)
    assert made["stock"]["prepared"] is None
    notes = {}
    for name in ("texts", "texts by Spark"):
        record = made[name]
        note = notes[name] = record["prepared"]
        preparing = note["ended"] - note["started"]
        assert 0 < preparing < record["total_s"] and note["rows"] == TRAIN + VALIDATION
        assert abs(sum(record["phases"].values()) + preparing - record["total_s"]) < 1e-6
        # Weights and figures are copied back; tokens, which the data set has anyway, are not.
        assert "prepared.json" in record["files"]
        assert not any(file.startswith("tokens/") for file in record["files"])
    assert notes["texts"]["by"] == "one process on master, 1 thread"
    assert notes["texts"]["ended"] < made["texts"]["launch"]["started"]
    assert notes["texts by Spark"]["by"] == "a Spark job of 2 tasks, 1 thread each"
    launched, note = made["texts by Spark"]["launch"], notes["texts by Spark"]
    assert launched["started"] < note["started"] < note["ended"] < launched["ended"]
    assert not testbed.node("master", "find /srv/trainbed/shared/runs -name tokens").output.strip()

    testbed.make("report", f"MATRIX={testbed.root / 'ways.yml'}")
    (report,) = (testbed.root / "results" / "ways").glob("*/report.md")
    assert "## From texts to a trained model" in report.read_text(encoding="utf-8")


def on_every_stack(
    testbed: Testbed, name: str, train: int = TRAIN, **defaults: Any
) -> dict[str, dict[str, Any]]:
    """The records, by stack, of one run on two workers with further settings."""
    axes = {"stack": STACKS, "workers": [2], "epochs": [1], "seed": [1]}
    text = SMALL[: SMALL.index("defaults:")].replace("name: small", f"name: {name}")
    text = text.replace("train: 1200", f"train: {train}")
    matrix = testbed.root / f"{name}.yml"
    order = {"arrangement": "written", "warm_ups": False}
    for part, value in (("defaults", defaults), ("axes", axes), ("order", order)):
        text += f"{part}: {json.dumps(value)}\n"
    matrix.write_text(text, encoding="utf-8")
    testbed.make("matrix", f"MATRIX={matrix}")
    testbed.make("report", f"MATRIX={matrix}")
    found = {record["specification"]["stack"]: record for record in records(testbed, name)}
    assert set(found) == set(STACKS) and {record["status"] for record in found.values()} == {"ok"}
    assert len({record["weights_digest"] for record in found.values()}) == 1
    return found


def report_of(testbed: Testbed, name: str) -> str:
    """The report of a matrix's only campaign."""
    (report,) = (testbed.root / "results" / name).glob("*/report.md")
    return report.read_text(encoding="utf-8")


def test_every_stack_has_the_portable_kernels_and_the_shared_data_that_a_run_asks_for(
    testbed: Testbed,
) -> None:
    further: dict[str, Any] = {"bits": "portable", "allocator": "stock", "printed_lines": 2}
    further |= {"scoring": "evaluate"}
    further |= {"loader_workers": 1, "loader_start": "spawn"}  # of another main program on each stack
    further |= {"data_place": "shared"}
    made = on_every_stack(testbed, "portable", train=TRAIN + 40, **further)  # no other matrix has these data
    # It is on the shared storage alone, so no rank can have read it anywhere else.
    (digest,) = {record["specification"]["work"]["data_digest"] for record in made.values()}
    for node in NODES:
        assert digest not in testbed.node(node, "ls /var/lib/trainbed/data").output
        staged = f"cat /srv/trainbed/shared/data/{digest}/dataset.json"
        assert json.loads(testbed.node(node, staged).output)["digest"] == digest
    for record in made.values():
        for rank in record["ranks"]:
            assert rank["census"]["arithmetic"]["branch of MKL"] == "COMPATIBLE"
            assert rank["census"]["arithmetic"]["instructions of torch"] == "AVX2"
            # Options differ: where a stack mounts the data for its ranks, they are read-only.
            data, results = (rank["census"]["mounts"][name].split(" (")[0] for name in ("data", "results"))
            assert data == results
    # What a launch changes is noted, and the report names it.
    given = {stack: record["ranks"][0]["census"]["environment"] for stack, record in made.items()}
    assert any(name.startswith("SPARK_") for name in given["spark"])
    assert not any(name.startswith("SPARK_") for name in given["ddp"])
    assert "## What the launches differ in" in report_of(testbed, "portable")


def test_a_simulated_accelerator_takes_its_time_on_every_stack(testbed: Testbed) -> None:
    made = on_every_stack(testbed, "simulated", simulated_step_ms=40.0)
    for record in made.values():
        work = record["specification"]["work"]
        assert record["run_id"].startswith(f"{record['specification']['stack']}-simulated-w2-")
        samples = TRAIN / work["workers"]
        assert record["phases"]["forward"] >= samples / work["batch_per_worker"] * 0.040
        assert record["epochs"][-1]["validation_count"] == VALIDATION
        assert record["epochs"][-1]["validation_accuracy"] is None
    assert "Nothing was trained: a simulated accelerator" in report_of(testbed, "simulated")


def test_every_stack_starts_an_empty_program_beside_training(testbed: Testbed) -> None:
    axes = {"stack": STACKS, "program": ["training", "empty"], "workers": [2], "epochs": [1], "seed": [1]}
    text = SMALL[: SMALL.index("defaults:")].replace("name: small", "name: bare")
    text = text.replace("train: 1200", f"train: {TRAIN}")
    matrix = testbed.root / "bare.yml"
    for part, value in (("axes", axes), ("order", {"arrangement": "written", "warm_ups": False})):
        text += f"{part}: {json.dumps(value)}\n"
    matrix.write_text(text, encoding="utf-8")
    testbed.make("matrix", f"MATRIX={matrix}")
    testbed.make("report", f"MATRIX={matrix}")

    found = {
        (record["specification"]["stack"], record["specification"]["conditions"]["program"]): record
        for record in records(testbed, "bare")
    }
    assert {record["status"] for record in found.values()} == {"ok"} and len(found) == 2 * len(STACKS)
    for stack in STACKS:
        training, empty = found[stack, "training"], found[stack, "empty"]
        assert empty["run_id"].startswith(f"{stack}-empty-w2-e1-s1-")
        assert empty["ranks"] == empty["epochs"] == [] and empty["weights_digest"] is None
        bare_s, whole_s = (each["launch"]["ended"] - each["launch"]["started"] for each in (empty, training))
        assert 0 < bare_s < empty["total_s"] and bare_s < whole_s
        left = {name for name in empty["files"] if name.startswith(("rank-", "starts-", "result", "census-"))}
        assert not left
    commands = {stack: " ".join(found[stack, "empty"]["launch"]["command"]) for stack in STACKS}
    assert "torchrun" in commands["ddp"] and commands["ddp"].endswith(" training/launchers/empty.py")
    assert "/training/launchers/spark_empty.py" in commands["spark"]
    assert "/training/launchers/empty.py" in commands["determined"]
    report = report_of(testbed, "bare")
    assert "## Fixed costs" in report and "| bare start, s |" in report
    assert nothing_runs(testbed)


def test_runs_with_newer_libraries_are_in_an_environment_that_comes_and_goes(testbed: Testbed) -> None:
    asked, link = "ARGS=-e environment_newest=true", "/opt/trainbed/env/newest"
    matrix = testbed.root / "newest.yml"
    axes: dict[str, list[Any]] = {"stack": ["ddp"], "runtime": ["native"], "libraries": ["locked", "newest"]}
    axes |= {"workers": [2], "epochs": [1], "seed": [1]}
    rows: list[dict[str, Any]] = [
        {name: values[0] for name, values in axes.items()} | {"stack": "spark", "runtime": "stack"}
    ]
    rows[0]["libraries"] = axes["libraries"]
    text = SMALL[: SMALL.index("axes:")].replace("name: small", "name: newest")
    order = {"arrangement": "written", "warm_ups": False}
    for name, value in (("axes", axes), ("rows", rows), ("order", order)):
        text += f"{name}: {json.dumps(value)}\n"
    matrix.write_text(text, encoding="utf-8")

    refused = testbed.make("provision", asked, check=False)
    assert refused.code != 0 and not refused.changed()
    assert "write it with 'make lock LIBRARIES=newest VARIANT=" in re.sub(r"\s+", " ", refused.output)
    found = testbed.node("master", "cat /opt/trainbed/env/current/LOCK").output.split()[0]
    variant, _, python = found.partition("-py")
    locks = testbed.root / "inventory/testbed/locks"
    try:
        testbed.make("lock", "LIBRARIES=newest", f"VARIANT={variant}", f"ARGS=--python {python}")
        (lock,) = locks.glob("newest/*.txt")
        assert lock.read_text(encoding="utf-8").startswith("# Resolved on ") and lock.stem == found
        planned = re.sub(r"[\s│|]+", " ", testbed.make("plan", f"MATRIX={matrix}").output)
        assert "The nodes have no environment with the newest libraries" in planned
        assert testbed.make("provision", f"{asked} --check").changed() == set(NODES)
        assert testbed.make("provision", asked).changed() == set(NODES)
        for again in (asked, f"{asked} --check"):
            assert not testbed.make("provision", again).changed()
        testbed.make("verify")
        testbed.make("matrix", f"MATRIX={matrix}")
        digests = {
            place: testbed.node("worker1", f"cat /opt/trainbed/env/{place}/DIGEST").output.strip()
            for place in ("current", "newest")
        }
        made = records(testbed, "newest")
        assert len(made) == 4 and {record["status"] for record in made} == {"ok"}
        for record in made:
            libraries = record["specification"]["conditions"]["libraries"]
            there = digests["newest" if libraries == "newest" else "current"]
            assert {rank["environment_digest"] for rank in record["ranks"]} == {there}
            assert record["environment"]["environments"]["newest"] == digests["newest"]
        testbed.make("report", f"MATRIX={matrix}")
        assert "with libraries: newest, digest " in report_of(testbed, "newest")
        assert nothing_runs(testbed)
    finally:
        shutil.rmtree(locks, ignore_errors=True)
        taken = testbed.make("provision")
    assert taken.changed() == set(NODES) and not testbed.make("provision").changed()
    for node in NODES:
        testbed.node(node, f"test ! -e {link} && test -e /opt/trainbed/env/current/DIGEST")


def key(record: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The stack, and the way it was used."""
    specification = record["specification"]
    return specification["stack"], tuple(specification["conditions"][name] for name in STOCK)
