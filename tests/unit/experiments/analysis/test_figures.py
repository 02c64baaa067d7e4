"""The figures of a campaign: their arithmetic, on hand-made records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.figures import Cell, figures_of, half_width
from experiments.analysis.statistics import Ratio
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Epoch, Record
from experiments.report.sections.conclusions import weights_sentence
from experiments.report.training_words import work_text
from tests.unit.experiments.made_up_records import campaign, planned, quick, record, spec
from training.spec import RunSpec


def cells(where: object) -> dict[tuple[str, int], Cell]:
    return {(cell.stack, cell.workers): cell for cell in figures_of(where).cells}  # type: ignore[arg-type]


def ratio_of(found: Ratio | None) -> float:
    assert found is not None
    return found.ratio


def of_specification(specification: RunSpec) -> dict[str, Any]:
    """The fields that differ in the record of a run with another specification."""
    return {
        "specification": specification,
        "run_id": specification.run_id,
        "work_digest": specification.work.digest,
        "conditions_digest": specification.conditions.digest,
    }


def test_overhead_speed_up_and_efficiency(tmp_path: Path) -> None:
    found = cells(quick(tmp_path))
    assert ratio_of(found["spark", 1].overhead_train) == pytest.approx(1.1)
    assert ratio_of(found["spark", 2].overhead_train) == pytest.approx(1.25)
    assert ratio_of(found["spark", 2].overhead_total) == pytest.approx(61.5 / 45)
    assert found["ddp", 1].overhead_train is None  # the baseline
    assert ratio_of(found["ddp", 2].speed_up) == pytest.approx(50 / 32)
    efficiency = found["spark", 2].efficiency
    assert efficiency is not None and efficiency.mean == pytest.approx(55 / 40 / 2)
    assert found["ddp", 1].speed_up is None and found["ddp", 1].efficiency is None


def test_accuracy_and_its_interval(tmp_path: Path) -> None:
    accuracy = cells(quick(tmp_path))["ddp", 1].accuracy
    assert accuracy is not None and (accuracy.correct, accuracy.count) == (780, 1000)
    assert accuracy.half_width == pytest.approx(0.02568, abs=1e-5)
    # 25,000 reviews: ±0.0047; 5,000 reviews: about ±0.010.
    assert half_width(0.826, 25000) == pytest.approx(0.0047, abs=5e-5)
    assert half_width(0.82, 5000) == pytest.approx(0.0106, abs=5e-5)


def test_every_share_of_samples_has_the_width_of_one_evaluation(tmp_path: Path) -> None:
    one = spec("ddp", 1)
    work = one.work.model_copy(update={"data": one.work.data.model_copy(update={"test": 500})})
    made = one.model_copy(update={"work": work})
    shares = {"validation_accuracy": 0.78, "validation_top_5_accuracy": 0.9, "test_top_5_accuracy": 0.8}
    last = {"epoch": 1, "seconds": 1.0, "validation_balanced_accuracy": 0.9} | shares
    axes = {"stack": "ddp", "workers": 1, "epochs": 2, "seed": 1}
    plan = [PlannedRun(run_id=made.run_id, axes=axes, specification=made)]
    new = record("ddp", 1, 50.0, 62.0, **of_specification(made), epochs=[Epoch.model_validate(last)])
    cell = cells(campaign(tmp_path, plan, [new]))["ddp", 1]
    assert cell.one_evaluation("top_5_accuracy") == half_width(0.9, 1000)
    assert cell.one_evaluation("test_top_5_accuracy") == half_width(0.8, 500)
    assert cell.one_evaluation("balanced_accuracy") is None  # no share of samples


def test_only_seeds_that_both_have_are_held_against_one_another(tmp_path: Path) -> None:
    plan = [planned(stack, 1, seed) for stack in ("ddp", "spark") for seed in (1, 2)]
    records = [
        record("ddp", 1, 50.0, 60.0, 1),
        record("ddp", 1, 500.0, 600.0, 2),
        record("spark", 1, 55.0, 90.0),
    ]
    more = [*records, record("spark", 1, 56.0, 91.0, 3)]
    cell = cells(campaign(tmp_path / "more", [*plan, planned("spark", 1, 3)], more))["spark", 1]
    assert (len(cell.records), cell.planned) == (2, 3)
    assert cell.overhead_train is not None and cell.overhead_train.n == 1
    found = cells(campaign(tmp_path, plan, records))
    assert ratio_of(found["spark", 1].overhead_train) == pytest.approx(1.1)
    assert ratio_of(found["spark", 1].overhead_total) == pytest.approx(1.5)
    none = cells(campaign(tmp_path / "none", plan, records[1:]))
    assert none["spark", 1].overhead_train is None


def test_other_threads_may_give_other_weights(tmp_path: Path) -> None:
    records = []
    for stack in ("ddp", "spark"):
        for threads in (1, 2):
            one = spec(stack, 1)
            conditions = one.conditions.model_copy(update={"threads": threads})
            specification = one.model_copy(update={"conditions": conditions})
            changes = of_specification(specification) | {"weights_digest": f"{threads}" * 64}
            records.append(record(stack, 1, 1, 2, **changes))
    plan = [
        PlannedRun(
            run_id=each.run_id,
            axes={"stack": each.specification.stack, "workers": 1, "epochs": 2, "seed": 1}
            | {"threads": each.specification.conditions.threads},
            specification=each.specification,
        )
        for each in records
    ]
    figures = figures_of(campaign(tmp_path, plan, records))
    assert len(figures.works) == 2 and not figures.weights_differ


def test_whether_weights_agree(tmp_path: Path) -> None:
    figures = figures_of(quick(tmp_path))
    assert len(figures.works) == 2 and not figures.weights_differ
    plan = [planned("ddp", 1), planned("spark", 1), planned("spark", 2)]
    records = [
        record("ddp", 1, 1, 2),
        record("spark", 1, 1, 2, weights_digest="f" * 64),
        record("spark", 2, 1, 2),
    ]
    figures = figures_of(campaign(tmp_path / "differ", plan, records))
    assert [work.equal for work in figures.works] == [False] and figures.weights_differ
    assert figures.works_of_one_stack == 1
    assert figures_of(campaign(tmp_path / "alone", plan, records[:1])).works == []


def on_processor(made: Record, processor: str) -> Record:
    """The same record from nodes with another processor."""
    environment = made.environment
    nodes = {name: node.model_copy(update={"cpu": processor}) for name, node in environment.nodes.items()}
    return made.model_copy(update={"environment": environment.model_copy(update={"nodes": nodes})})


def test_weights_of_other_libraries_are_compared_with_their_like(tmp_path: Path) -> None:
    def with_libraries(stack: str, libraries: str, digest: str) -> Record:
        one = spec(stack, 1)
        conditions = one.conditions.model_copy(update={"libraries": libraries})
        changes = of_specification(one.model_copy(update={"conditions": conditions}))
        return record(stack, 1, 1, 2, weights_digest=digest * 64, **changes)

    ends = {
        ("ddp", "locked"): "a",
        ("spark", "locked"): "a",
        ("ddp", "newest"): "b",
        ("spark", "newest"): "b",
    }
    records = [with_libraries(*each, digest) for each, digest in ends.items()]
    plan = [
        planned(made.specification.stack, 1).model_copy(
            update={"run_id": made.run_id, "specification": made.specification}
        )
        for made in records
    ]
    figures = figures_of(campaign(tmp_path / "alike", plan, records))
    assert [work.equal for work in figures.works] == [True, True] and not figures.works_apart
    differing = [*records[:3], with_libraries("spark", "newest", "a")]
    assert figures_of(campaign(tmp_path / "differ", plan, differing)).weights_differ


def test_weights_of_processors_of_another_kind_are_compared_only_if_kernels_are_portable(
    tmp_path: Path,
) -> None:
    plan = [planned("ddp", 1), planned("spark", 1)]
    first = record("ddp", 1, 1, 2)
    other = on_processor(record("spark", 1, 1, 2, weights_digest="f" * 64), "Another processor")
    figures = figures_of(campaign(tmp_path / "machine", plan, [first, other]))
    assert (figures.works, figures.works_of_one_stack, len(figures.works_apart)) == ([], 0, 1)
    assert weights_sentence(figures) == (
        "The last bits of the weights of 1 workload can't be compared, as stacks did not compute alike: "
        f"{first.environment.nodes['worker1'].cpu} (ddp) and Another processor (spark); bits: portable makes "
        "processors alike."
    )

    def portable(stack: str, digest: str) -> Record:
        one = spec(stack, 1)
        conditions = one.conditions.model_copy(update={"bits": "portable"})
        changes = of_specification(one.model_copy(update={"conditions": conditions}))
        return record(stack, 1, 1, 2, weights_digest=digest, **changes)

    records = [portable("ddp", "a" * 64), on_processor(portable("spark", "b" * 64), "Another processor")]
    plan = [
        PlannedRun(
            run_id=each.run_id,
            axes={"stack": each.specification.stack, "workers": 1, "epochs": 2, "seed": 1},
            specification=each.specification,
        )
        for each in records
    ]
    assert figures_of(campaign(tmp_path / "portable", plan, records)).weights_differ


def test_runs_whose_bits_may_differ_by_chance_prove_nothing(tmp_path: Path) -> None:
    plan, records = [], []
    for stack, digest in (("ddp", "a" * 64), ("spark", "b" * 64)):
        one = spec(stack, 1)
        specification = one.model_copy(
            update={"conditions": one.conditions.model_copy(update={"deterministic": False})}
        )
        records.append(record(stack, 1, 1, 2, weights_digest=digest, **of_specification(specification)))
        axes = {"stack": stack, "workers": 1, "deterministic": False, "epochs": 2, "seed": 1}
        plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
    figures = figures_of(campaign(tmp_path / "chance", plan, records))
    assert (figures.works, figures.works_of_one_stack, figures.by_chance) == ([], 0, 2)
    assert weights_sentence(figures) == (
        "Equal work is not proven: 2 runs without deterministic algorithms may end with other bits by chance."
    )
    both = [planned("ddp", 1), planned("spark", 1), *plan]
    certain = [record("ddp", 1, 1, 2), record("spark", 1, 1, 2)]
    figures = figures_of(campaign(tmp_path / "both", both, [*certain, *records]))
    assert not figures.weights_differ and len(figures.works) == 1
    assert weights_sentence(figures).endswith("may end with other bits by chance, and are left out.")


def test_with_a_constant_batch_the_speed_up_is_against_the_same_batch_alone(tmp_path: Path) -> None:
    plan, records = [], []
    for workers, batch, seconds in ((1, 32, 50.0), (2, 16, 30.0)):
        one = spec("ddp", workers)
        work = one.work.model_copy(update={"batch_per_worker": batch})
        specification = one.model_copy(update={"work": work})
        changes = of_specification(specification)
        records.append(record("ddp", workers, seconds, seconds + 10, **changes))
        axes = {"stack": "ddp", "workers": workers, "batch_per_worker": batch, "epochs": 2, "seed": 1}
        plan.append(PlannedRun(run_id=specification.run_id, axes=axes, specification=specification))
    made = campaign(tmp_path, plan, records)
    assert ratio_of(cells(made)["ddp", 2].speed_up) == pytest.approx(50 / 30)
    assert figures_of(made).same_steps
    assert "32 shared by all workers" in work_text(made.file)
