"""Hand-made campaigns and records for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from experiments.campaign.campaign import Campaign, CampaignFile
from experiments.campaign.identity import Identity
from experiments.campaign.plan import PlannedRun
from experiments.cluster.environment import Environment
from experiments.records.record import Record, write_record
from experiments.util.files import sha256
from training.spec import PHASES, RunSpec

STARTED = datetime(2026, 11, 21, 11, 45, tzinfo=UTC)
NAME = "20261121T114500Z"
CODE = b"code"

ENVIRONMENT = Environment.model_validate(
    {
        "inventory": "testbed",
        "nodes": {
            name: {
                "address": f"198.18.0.{at}",
                "groups": ["cluster", "master" if at == 1 else "workers"],
                "distribution": "Debian GNU/Linux 12 (bookworm)",
                "kernel": "6.1.0-28-amd64",
                "cpu": "A processor with a rather long name @ 2.10GHz",
                "cores": 2 if at == 1 else 1,
                "memory_mb": 24089,
                "python": "3.11.2",
                "environment_digest": "e" * 64,
                "docker": "20.10.24+dfsg1",
                "java": "openjdk 17.0.13",
                "virtualization": "docker",
            }
            for at, name in enumerate(("master", "worker1", "worker2"), start=1)
        },
        "workers": ["worker1", "worker2"],
        "environment_digest": "e" * 64,
        "lock": "cpu-py3.11",
        "image": {"reference": "master:5000/trainbed:0123", "id": "sha256:" + "a" * 64},
        "link": {"configured": "1gbit", "measured_mbit": 941.2, "between": ["worker1", "worker2"]},
        "pinning": "one core per worker",
        "slots_per_worker": 1,
        "device": "cpu",
        "versions": {"ansible": "2.19.14", "torch": "2.13.0"},
        "git": {"revision": "0123456789abcdef", "dirty": True},
    }
)


def spec(stack: str, workers: int, seed: int = 1) -> RunSpec:
    """The specification of a run."""
    data = {"train": 4000, "validation": 1000, "seed": 1, "max_length": 128}
    work = {"data": data, "data_digest": "d" * 64, "workers": workers, "epochs": 2, "seed": seed}
    conditions = {"pinning": "one core per worker", "link_rate": "1gbit"}
    return RunSpec.model_validate({"stack": stack, "work": work, "conditions": conditions})


def planned(stack: str, workers: int, seed: int = 1, cannot_run: str | None = None) -> PlannedRun:
    """A row of the plan."""
    specification = spec(stack, workers, seed)
    axes = {"stack": stack, "workers": workers, "epochs": 2, "seed": seed}
    return PlannedRun(
        run_id=specification.run_id, axes=axes, specification=specification, cannot_run=cannot_run
    )


def record(
    stack: str, workers: int, train_s: float, total_s: float, seed: int = 1, attempt: int = 1, **changes: Any
) -> Record:
    """The record of a run that is ok, with `changes`."""
    specification = spec(stack, workers, seed)
    phases = dict.fromkeys(PHASES, 0.0) | {"queue": 0.5, "forward": train_s / 4, "backward": train_s / 2}
    phases["other"] = total_s - sum(phases.values())
    ended = STARTED + timedelta(seconds=total_s)
    epoch = {"train_loss": 0.6, "seconds": train_s / 2, "validation_loss": 0.5, "validation_accuracy": 0.78}
    content = {
        "matrix": "made",
        "campaign": NAME,
        "run_id": specification.run_id,
        "attempt": attempt,
        "specification": specification,
        "work_digest": specification.work.digest,
        "conditions_digest": specification.conditions.digest,
        "code_digest": sha256(CODE),
        "status": "ok",
        "reason": None,
        "started": STARTED,
        "ended": ended,
        "total_s": total_s,
        "train_s": train_s,
        "slowest_rank": 0,
        "phases": phases,
        "epochs": [epoch | {"epoch": 1}, epoch | {"epoch": 2}],
        "weights_digest": f"{workers}{seed}" * 32,
        "validation_correct": 780,
        "validation_count": 1000,
        "ranks": [
            {
                "rank": rank,
                "local_rank": 0,
                "node": f"worker{rank + 1}",
                "host": f"worker{rank + 1}",
                "uid": 990,
                "affinity": [rank],
                "threads": 1,
                "interop_threads": 1,
                "omp_num_threads": "1",
                "cpu_capability": "AVX2",
                "versions": {"torch": "2.13.0"},
                "environment_digest": "e" * 64,
                "steps": 250,
                "train_s": train_s,
                "weights_digest": f"{workers}{seed}" * 32,
            }
            for rank in range(workers)
        ],
        "launch": {
            "stack": stack,
            "started": 0.0,
            "ended": total_s,
            "exit_code": 0,
            "command": ["launch"],
            "nodes": [],
        },
        "environment": ENVIRONMENT,
        "notes": [],
        "files": {},
    }
    return Record.model_validate(content | changes)


def campaign(
    results: Path,
    plan: list[PlannedRun],
    records: list[Record],
    name: str = NAME,
    identity_changes: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Campaign:
    """A campaign whose folder holds these records; `changes` apply to its file."""
    folder = results / "made" / name
    folder.mkdir(parents=True)
    (folder / "training.zip").write_bytes(CODE)
    identity = Identity(
        matrix={"name": "made"},
        code=sha256(CODE),
        launching="b" * 64,
        environment="e" * 64,
        image="sha256:" + "a" * 64,
        dataset="d" * 64,
        hardware=dict.fromkeys(ENVIRONMENT.nodes, "the same"),
        workers=ENVIRONMENT.workers,
        settings={},
        stacks=["ddp", "spark"],
        runs=[run.run_id for run in plan],
    ).model_copy(update=dict(identity_changes or {}))
    file = CampaignFile(
        matrix="made",
        name=name,
        description="A campaign made by hand, to see what the report makes of it.",
        started=STARTED,
        baseline="ddp",
        identity=identity,
        plan=plan,
        stacks_missing={},
        environment=ENVIRONMENT,
        dataset={"digest": "d" * 64},
    ).model_copy(update=changes)
    (folder / "campaign.json").write_text(json.dumps(file.model_dump(mode="json")))
    for each in records:
        attempt = folder / each.run_id / f"{each.attempt:02d}"
        (attempt / "outputs").mkdir(parents=True)
        write_record(each, attempt)
    return Campaign(folder, file)


def quick(results: Path) -> Campaign:
    """A campaign like one of the quick matrix, with every run ok."""
    cells = [
        ("ddp", 1, 50.0, 62.0),
        ("ddp", 2, 32.0, 45.0),
        ("spark", 1, 55.0, 75.0),
        ("spark", 2, 40.0, 61.5),
    ]
    plan = [planned(stack, workers) for stack, workers, _, _ in cells]
    return campaign(results, plan, [record(*cell) for cell in cells])


def with_batches(
    results: Path, cells: Sequence[tuple[str, int, int, int, Sequence[float]]], **changes: Any
) -> Campaign:
    """A campaign with batches as an axis: stack, workers, epochs, batch, and train_s of seeds 1, 2, ...

    `changes` apply to all of Spark's records.
    """
    plan, records = [], []
    for stack, workers, epochs, batch, times in cells:
        for seed, seconds in enumerate(times, start=1):
            one = spec(stack, workers, seed)
            work = one.work.model_copy(update={"epochs": epochs, "batch_per_worker": batch})
            made = one.model_copy(update={"work": work})
            axes = {"stack": stack, "workers": workers, "epochs": epochs, "batch_per_worker": batch}
            plan.append(PlannedRun(run_id=made.run_id, axes=axes | {"seed": seed}, specification=made))
            different: dict[str, Any] = {
                "specification": made,
                "run_id": made.run_id,
                "work_digest": made.work.digest,
            }
            different |= changes if stack == "spark" else {}
            records.append(record(stack, workers, seconds, seconds + 10, seed, **different))
    return campaign(results, plan, records)


def seeds(results: Path, spark: float, noise: float) -> Campaign:
    """A campaign of five seeds on two stacks: Spark takes `spark` times as long, give or take `noise`."""
    plan = [planned(stack, 2, seed) for stack in ("ddp", "spark") for seed in range(1, 6)]
    records = []
    for seed in range(1, 6):
        drift = 1 + 0.1 * seed
        records.append(record("ddp", 2, 30 * drift, 45.0, seed))
        records.append(record("spark", 2, 30 * drift * spark * (1 + noise * (seed - 3)), 45.0, seed))
    return campaign(results, plan, records)
