"""A hand-made campaign with all that a report's page must cope with: seeds, GPUs, failures, long words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from experiments.campaign.campaign import Campaign
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from tests.unit.experiments.made_up_records import campaign, planned, record, spec
from tests.unit.experiments.made_up_use import rank_use

STACKS: Final = {"ddp": 1.0, "spark": 1.25, "determined": 1.08}  # factors on the training time
SEEDS: Final = (1, 2, 3)
LENGTHS: Final = (2, 10)  # epochs
PATH: Final = "/srv/trainbed/" + "a-folder-with-a-long-name/" * 6
REASON: Final = (
    "Rank 1 on worker2 ended with status 1: OSError: [Errno 28] No space left on device: "
    f"'{PATH}checkpoint-000250.pt'; the other ranks were told to stop, and the node was left as it was. " * 2
)


def _gpu(rank: int) -> dict[str, Any]:
    return {
        "uuid": f"GPU-{rank}",
        "name": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "samples": 40,
        "utilisation_percent_mean": 91.2 if rank == 0 else 9.5,
        "memory_mb_max": 10240.0,
        "temperature_c_max": 71.0,
        "sm_clock_mhz_mean": 1410.0,
        "sm_clock_mhz_min": 1200.0,
        "power_w_mean": 64.8 if rank == 0 else None,
        "throttled": {"power cap": 0.25, "hardware thermal slowdown": 0.5} if rank == 0 else {},
    }


def _cell(stack: str, workers: int, epochs: int, seed: int) -> tuple[PlannedRun, dict[str, Any]]:
    one = spec(stack, workers, seed)
    specification = one.model_copy(update={"work": one.work.model_copy(update={"epochs": epochs})})
    axes = {"stack": stack, "workers": workers, "epochs": epochs, "seed": seed}
    run = PlannedRun(run_id=specification.run_id, axes=axes, specification=specification)
    return run, {
        "specification": specification,
        "run_id": specification.run_id,
        "work_digest": specification.work.digest,
        "conditions_digest": specification.conditions.digest,
    }


def _with_gpus_and_use(made: Record) -> Record:
    ranks = [
        rank.model_dump() | {"gpu": _gpu(rank.rank), "use": rank_use(), "visible_gpus": str(rank.rank)}
        for rank in made.ranks
    ]
    return Record.model_validate(made.model_dump() | {"ranks": ranks})


def everything(results: Path) -> Campaign:
    """Three stacks, two lengths, three seeds; one run failed twice and one can't be run."""
    plan, records = [], []
    for stack, longer in STACKS.items():
        for workers in (1, 2):
            for epochs in LENGTHS:
                for seed in SEEDS:
                    run, changes = _cell(stack, workers, epochs, seed)
                    plan.append(run)
                    train = longer * epochs * (25.0 + seed / 3) / (1 if workers == 1 else 1.6)
                    if (stack, workers, epochs, seed) == ("determined", 2, 10, 3):
                        failed = {"status": "failed", "reason": REASON, "phases": None}
                        records += [
                            record(stack, workers, train, train + 20, seed, attempt, **changes, **failed)
                            for attempt in (1, 2)
                        ]
                    else:
                        made = record(stack, workers, train, train + 20, seed, **changes)
                        records.append(_with_gpus_and_use(made))
    plan.append(planned("anotherstack", 2, cannot_run=f"It is not on the nodes: {PATH} is empty."))
    note = f"The clocks of master and worker2 differ by 0.3 s; see {PATH}clock.txt"
    records[0] = records[0].model_copy(update={"notes": [note]})
    return campaign(results, plan, records)
