"""A hand-made campaign with a ladder whose rungs take known times."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from experiments.campaign.campaign import Campaign, open_campaign
from experiments.campaign.plan import PlannedRun
from experiments.matrix.ladders import Ladder
from experiments.records.record import Record
from tests.unit.experiments.made_up_records import campaign, record, spec
from training.spec import PHASES, RunSpec

START, MIDDLE, END = "tokenising in the loop", "tokenised before", "DDP"
LADDER = {
    "name": "Spark",
    "rungs": [
        {"label": START, "when": {"stack": "spark", "threads": 1, "tokenizing": "in_loop"}},
        {"label": "more threads", "when": {"stack": "spark", "threads": "cluster", "tokenizing": "in_loop"}},
        {"label": MIDDLE, "when": {"stack": "spark", "threads": "cluster", "tokenizing": "before"}},
        {"label": END, "when": {"stack": "ddp", "threads": "cluster", "tokenizing": "before"}},
    ],
}


def specification(stack: str, tokenizing: str, seed: int, workers: int = 2) -> RunSpec:
    """The specification of a run on a rung."""
    one = spec(stack, workers, seed)
    return one.model_copy(update={"conditions": one.conditions.model_copy(update={"tokenizing": tokenizing})})


def row(one: RunSpec, **changes: Any) -> PlannedRun:
    """The run's row of the plan; on one-core nodes, one thread is also the cluster's number of threads."""
    tokenizing = one.conditions.tokenizing
    axes = {"stack": one.stack, "threads": "cluster", "tokenizing": tokenizing, "workers": one.work.workers}
    axes |= {"epochs": 2, "seed": one.work.seed}
    also = [axes | {"threads": 1}] if tokenizing == "in_loop" else []
    return PlannedRun(run_id=one.run_id, axes=axes, specification=one, also=also, **changes)


def outcome(one: RunSpec, train_s: float, data: float, attempt: int = 1) -> Record:
    """The run's record, with `data` seconds in the phase data."""
    total_s = train_s + 12.0
    phases = dict.fromkeys(PHASES, 0.0) | {"data": data, "forward": 10.0, "backward": 20.0}
    phases["other"] = total_s - sum(phases.values())
    return record(
        one.stack,
        one.work.workers,
        train_s,
        total_s,
        one.work.seed,
        attempt,
        specification=one,
        run_id=one.run_id,
        conditions_digest=one.conditions.digest,
        phases=phases,
    )


def ladder(results: Path, seeds: int, tokenizing_s: float, stack_s: float, noise_s: float) -> Campaign:
    """A campaign: tokenising in the loop costs `tokenizing_s`, Spark `stack_s`, give or take `noise_s`."""
    plan: list[PlannedRun] = []
    records: list[Record] = []
    draw = random.Random(7)
    for seed in range(1, seeds + 1):
        drift = 40.0 + 3.0 * seed
        for stack, tokenizing, more, data in (
            ("spark", "in_loop", tokenizing_s + stack_s, 1.0 + tokenizing_s),
            ("spark", "before", stack_s, 1.0),
            ("ddp", "before", 0.0, 1.0),
        ):
            one = specification(stack, tokenizing, seed)
            plan.append(row(one, written=len(plan)))
            records.append(outcome(one, drift + more + draw.gauss(0, noise_s), data))
    return with_ladders(campaign(results, plan, records), LADDER)


def with_ladders(made: Campaign, *ladders: dict[str, Any]) -> Campaign:
    """The same campaign, read with these ladders."""
    parsed = [Ladder.model_validate(each) for each in ladders]
    file = made.file.model_copy(update={"ladders": parsed})
    (made.folder / "campaign.json").write_text(file.model_dump_json())
    return open_campaign(made.folder)
