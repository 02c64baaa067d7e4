"""What an overhead grows with: what was put in is found, and what can't be told apart is named."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from experiments.analysis.analysis import Analysis, analyse
from experiments.analysis.fingerprint import Fingerprint
from experiments.campaign.plan import PlannedRun
from experiments.matrix.loading import load_matrix
from experiments.records.record import Record
from experiments.report.export_rows import export_rows
from experiments.report.sections.fingerprint import fingerprint_table
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec
from training.spec import RunSpec

#: As in the shipped matrix: batches, evaluations and lengths.
CELLS: Sequence[Mapping[str, Any]] = [
    *({"batch_per_worker": batch, "evaluation": "sharded", "epochs": 2} for batch in (8, 32, 128)),
    *({"batch_per_worker": 32, "evaluation": how, "epochs": 2} for how in ("none", "replicated")),
    *({"batch_per_worker": 32, "evaluation": "sharded", "epochs": epochs} for epochs in (1, 4)),
]
#: Seconds more on Spark: once, in a step, and for each 32 samples of a rank, trained on and evaluated.
COSTS = {"once": 1.5, "step": 0.030, "trained": 0.004, "evaluated": 0.010}


def more_s(specification: RunSpec, costs: Mapping[str, float]) -> float:
    """By hand: 4,000 samples to train and 1,000 to evaluate, on two ranks."""
    work, how = specification.work, specification.conditions.evaluation
    of_rank = {"none": 0, "sharded": 500, "replicated": 1000}[how] * work.epochs
    return (
        costs["once"]
        + costs["step"] * work.steps
        + costs["trained"] * 2000 * work.epochs / 32
        + costs["evaluated"] * of_rank / 32
    )


def analysed(
    folder: Path,
    cells: Sequence[Mapping[str, Any]] = CELLS,
    costs: Mapping[str, float] = COSTS,
    keep: Callable[[str, int, Mapping[str, Any]], bool] = lambda *_: True,
    stacks: Sequence[str] = ("ddp", "spark"),
) -> Analysis:
    """Runs of ddp and spark, five seeds, with noise of 20 ms a run."""
    noise, runs = random.Random(2), list[tuple[PlannedRun, Record]]()
    for stack, axes, seed in itertools.product(stacks, cells, range(1, 6)):
        one = spec(stack, 2, seed)
        work = one.work.model_copy(
            update={name: axes[name] for name in ("batch_per_worker", "epochs") if name in axes}
        )
        conditions = one.conditions.model_copy(update={"evaluation": axes.get("evaluation", "sharded")})
        specification = one.model_copy(update={"work": work, "conditions": conditions})
        train_s = 20 + 0.05 * work.steps + noise.gauss(0, 0.02)
        train_s += more_s(specification, costs) if stack == "spark" else 0
        found = record(stack, 2, train_s, train_s + 9, seed, **of_specification(specification))
        plan = {"stack": stack, "workers": 2, "epochs": 2, "seed": seed} | axes
        if keep(stack, seed, axes):
            planned = PlannedRun(run_id=specification.run_id, axes=plan, specification=specification)
            runs.append((planned, found))
    return analyse(campaign(folder, [run for run, _ in runs], [each for _, each in runs]))


def only(found: list[Fingerprint]) -> Fingerprint:
    (each,) = found
    return each


def test_every_cost_is_found_in_its_own_term(tmp_path: Path) -> None:
    found = only(analysed(tmp_path).fingerprints)
    assert (found.stack, found.workers, found.settings, found.cells) == ("spark", 2, {}, 7)
    assert not found.confounded
    for term, seconds in COSTS.items():
        cost, size = found.costs[term], seconds if term == "once" else seconds * 1000  # type: ignore[index]
        assert cost.n == 5 and cost.low is not None and cost.high is not None
        assert 0 < cost.low < size < cost.high


@pytest.mark.parametrize("term", COSTS)
def test_a_cost_of_one_kind_is_not_taken_for_another(tmp_path: Path, term: str) -> None:
    analysis = analysed(tmp_path, costs=dict.fromkeys(COSTS, 0.0) | {term: 2 * COSTS[term]})
    (row,), (remark,) = (table := fingerprint_table(analysis.fingerprints, "ddp")).texts, table.after
    assert row[:4] == ["spark", "2", "7", "5"]
    words = {"once": "once", "step": "a step", "trained": "32 samples trained on"}
    assert remark == f"spark: more {words.get(term, '32 samples evaluated')}."
    rows = [each for each in export_rows(analysis) if each["section"] == "fingerprint"]
    assert len(rows) == 4 and all(each["low"] < each["high"] for each in rows)


def test_the_intervals_hold_for_all_stacks_at_once(tmp_path: Path) -> None:
    found = analysed(tmp_path, stacks=("ddp", "spark", "determined")).fingerprints
    assert [each.stack for each in found] == ["spark", "determined"]
    factor = stats.t.ppf(1 - 0.025 / 8, 4)  # two stacks with four costs each
    for cost in (cost for each in found for cost in each.costs.values()):
        assert cost.high is not None and cost.error is not None
        assert cost.high - cost.mean == pytest.approx(factor * cost.error)


def test_what_the_runs_cannot_tell_apart_is_left_out_and_named(tmp_path: Path) -> None:
    without = [each for each in CELLS if each["epochs"] == 2]
    found = only(analysed(tmp_path, without).fingerprints)
    assert found.confounded == ["trained"] and set(found.costs) == {"once", "step", "evaluated"}
    _, left_out = fingerprint_table([found], "ddp").after
    assert left_out == "spark: these runs can't tell apart, so it is left out: 32 samples trained on."


def test_a_seed_that_lacks_a_run_is_left_out(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, keep=lambda _, seed, axes: (seed, axes["epochs"]) != (3, 4))
    found = only(analysis.fingerprints)
    assert {cost.n for cost in found.costs.values()} == {4}


def test_runs_of_one_kind_have_no_fingerprint(tmp_path: Path) -> None:
    lengths = [{"epochs": epochs} for epochs in (1, 2, 4)]
    assert analysed(tmp_path / "lengths", lengths).fingerprints == []
    assert analysed(tmp_path / "two", CELLS[:2]).fingerprints == []


def test_the_shipped_matrix_has_these_cells() -> None:
    combinations = load_matrix("fingerprint").on(2).combinations()
    found = [
        {name: each[name] for name in CELLS[0]}
        for each in combinations
        if each["stack"] == "ddp" and each["seed"] == 1 and each["repetition"] == 1
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, map(dict, CELLS)))
