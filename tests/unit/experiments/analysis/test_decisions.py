"""Which stack the figures favour by each criterion, on records made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from experiments.analysis.analysis import analyse
from experiments.analysis.decisions import (
    NO_DIFFERENCE,
    NOT_MEASURED,
    NOT_RECORDED,
    OPEN,
    Criterion,
    Favoured,
)
from experiments.campaign.campaign import Campaign
from experiments.campaign.stacks import Setup
from experiments.report.sections.conclusions import NOT_OF_TIMES, conclusions
from experiments.report.sections.decisions import situations
from tests.unit.experiments.made_up_records import (
    campaign,
    planned,
    quick,
    record,
    seeds,
    with_batches,
)
from tests.unit.experiments.report.drawn import rows, tables
from tests.unit.experiments.report.test_organisation import STACKS, TWO, keep, made_up, provisioned

DDP, SPARK = Favoured("stacks", ("ddp",)), Favoured("stacks", ("spark",))


def says(made: Campaign, criterion: Criterion) -> Favoured:
    return analyse(made).favoured[criterion]


@pytest.mark.parametrize(
    ("spark", "noise", "expected"),
    [(1.2, 0.002, DDP), (0.8, 0.002, Favoured("stacks", ("spark",), over="ddp")), (1.01, 0.03, OPEN)],
)
def test_speed_says_what_the_comparisons_allow(
    tmp_path: Path, spark: float, noise: float, expected: Favoured
) -> None:
    assert says(seeds(tmp_path, spark, noise), "speed") == expected


def test_single_runs_favour_nobody(tmp_path: Path) -> None:
    found = analyse(quick(tmp_path)).favoured
    assert found["speed"] == found["waiting"] == OPEN
    assert found["step"] == found["pipeline"] == NOT_MEASURED
    assert found["weights"] == NO_DIFFERENCE
    assert found["installing"] == found["tracking"] == NOT_RECORDED


def test_waiting_favours_a_stack_that_takes_less_around_training(tmp_path: Path) -> None:
    plan = [planned(stack, 1, seed) for stack in ("ddp", "spark") for seed in (1, 2, 3)]
    for name, apart, expected in (("far", 10.0, DDP), ("near", -0.2, OPEN)):
        records = [
            record(stack, 1, 50.0, 60.0 + (apart + 0.1 * seed**2 if stack == "spark" else 0.1 * seed), seed)
            for stack in ("ddp", "spark")
            for seed in (1, 2, 3)
        ]
        assert says(campaign(tmp_path / name, plan, records), "waiting") == expected


def around_training(folder: Path, more: Mapping[str, Sequence[float]]) -> Favoured:
    """By runs of so many seconds more around training than 10, seed by seed."""
    cells = [(stack, seed, each) for stack, found in more.items() for seed, each in enumerate(found, 1)]
    plan = [planned(stack, 1, seed) for stack, seed, _ in cells]
    records = [record(stack, 1, 50.0, 60.0 + each, seed) for stack, seed, each in cells]
    return says(campaign(folder, plan, records), "waiting")


def test_waiting_is_judged_by_pairs_and_for_all_stacks_at_once(tmp_path: Path) -> None:
    ddp, spark = (0.0, 0.01, -0.01), (1.0, 1.6, 0.8)
    assert around_training(tmp_path / "two", {"ddp": ddp, "spark": spark}) == DDP
    # Each interval by itself lies above DDP's, but those of two comparisons don't exclude 0 at once.
    both = {"ddp": ddp, "spark": spark, "determined": spark}
    assert around_training(tmp_path / "three", both) == OPEN
    # All seeds differ by far, and each pair by the same.
    pairs = {"ddp": (0.0, 20.0, 40.0), "spark": (3.0, 23.1, 42.9)}
    assert around_training(tmp_path / "pairs", pairs) == DDP


def test_time_per_step_is_judged_by_pairs(tmp_path: Path) -> None:
    cells = [
        (stack, 1, epochs, 32, [seed * 10.0 * epochs + (more + seed / 10) * epochs for seed in (1, 2, 3)])
        for stack, more in (("ddp", 0.0), ("spark", 2.0))
        for epochs in (2, 10)
    ]
    cells[-1][-1][0] += 0.3
    assert says(with_batches(tmp_path, cells), "step") == DDP


def test_stacks_are_named_in_the_order_of_the_matrix(tmp_path: Path) -> None:
    plan = [planned(stack, 1).model_copy(update={"written": at}) for at, stack in enumerate(("ddp", "spark"))]
    shuffled = [planned("determined", 1).model_copy(update={"written": 2}), *reversed(plan)]
    made = campaign(tmp_path, shuffled, [record(stack, 1, 50.0, 60.0) for stack in ("ddp", "spark")])
    stacks = {stack: made_up(stack) for stack in ("determined", "ddp")} | {"spark": made_up("spark", "none")}
    keep(made.folder, Setup(stacks=TWO.model_copy(update={"stacks": stacks})))
    assert says(made, "tracking").stacks == ("ddp", "determined")


def test_time_per_step_favours_a_stack_that_is_faster_with_every_setting(tmp_path: Path) -> None:
    # Spark's steps take twice as long as DDP's with batches of 16, but less time with batches of 64.
    seconds = {("ddp", 16): 10.0, ("spark", 16): 20.0, ("ddp", 64): 6.0, ("spark", 64): 5.0}
    cells = [
        (stack, 1, epochs, batch, [each * epochs * (1 + seed**2 / 1000 * each) for seed in (1, 2, 3)])
        for (stack, batch), each in seconds.items()
        for epochs in (2, 10)
    ]
    assert says(with_batches(tmp_path / "both", cells), "step") == OPEN
    of_16 = [cell for cell in cells if cell[3] == 16]
    assert says(with_batches(tmp_path / "one", of_16), "step") == DDP


def test_times_of_equal_work_that_ended_differently_are_not_compared(tmp_path: Path) -> None:
    cells = [
        (stack, 1, epochs, 32, [more * epochs * (1 + seed**2 / 1000 * more) for seed in (1, 2, 3)])
        for stack, more in (("ddp", 10.0), ("spark", 20.0))
        for epochs in (2, 10)
    ]
    equal = with_batches(tmp_path / "equal", cells)
    differs = with_batches(tmp_path / "differs", cells, weights_digest="f" * 64)
    for criterion in ("speed", "step"):
        assert says(equal, criterion) == DDP
        assert says(differs, criterion).outcome == "unequal work"
    assert says(differs, "weights").outcome == "unequal work"
    said = conclusions(analyse(differs))
    assert said[0] == NOT_OF_TIMES and "takes" not in " ".join(said)
    warns = [tables(made)["Against ddp"].before.startswith("Equal work did NOT") for made in (equal, differs)]
    assert warns == [False, True]


def test_a_feature_favours_a_stack_by_its_level_and_says_where_only_a_claim_does(tmp_path: Path) -> None:
    made = quick(tmp_path)
    keep(made.folder, Setup(stacks=TWO))
    assert says(made, "tracking") == SPARK
    unsure = made_up("spark", "built in", not_shown="nobody tried")
    keep(made.folder, Setup(stacks=TWO.model_copy(update={"stacks": {**TWO.stacks, "spark": unsure}})))
    assert says(made, "tracking") == Favoured("stacks", ("spark",), claimed=("spark",))
    equal = made_up("spark")
    keep(made.folder, Setup(stacks=TWO.model_copy(update={"stacks": {**TWO.stacks, "spark": equal}})))
    assert says(made, "tracking") == NO_DIFFERENCE


def test_a_stack_that_provisioning_took_half_the_tasks_for_is_little_work(tmp_path: Path) -> None:
    made = quick(tmp_path)
    record = provisioned()
    _, spark, ground, inner = record.roles
    for tasks, expected in ((0, DDP), (1, NO_DIFFERENCE), (13, NO_DIFFERENCE), (14, SPARK)):
        ddp = spark.model_copy(update={"role": "ddp", "tasks": tasks})
        done = record.model_copy(update={"roles": [ddp, spark, ground, inner]})
        keep(made.folder, Setup(stacks=TWO, provisioning=done))
        # Its own tasks and those of the ground role, on which both stand.
        assert whole_tasks(made) == {"ddp": tasks + 4, "spark": 9}
        assert says(made, "installing") == expected
    # Of what was there before, provisioning does not show what installing takes.
    ddp = spark.model_copy(update={"role": "ddp", "tasks": 14, "changed": {}})
    done = record.model_copy(update={"roles": [ddp, spark, ground, inner]})
    keep(made.folder, Setup(stacks=TWO, provisioning=done))
    assert says(made, "installing") == NOT_RECORDED
    keep(made.folder, Setup(provisioning=record))
    assert whole_tasks(made) == {"ddp": None, "spark": 9}
    assert says(made, "installing") == NOT_RECORDED


def whole_tasks(made: Campaign) -> dict[str, int | None]:
    """The number of provisioning tasks of every stack, including the roles it stands on."""
    found = analyse(made).installing.stacks
    return {name: None if each.whole is None else each.whole.tasks for name, each in found.items()}


def test_every_situation_has_a_row_and_names_known_stacks(tmp_path: Path) -> None:
    assert {name for each in situations() for name in each.dissertation} <= set(STACKS)
    found = rows(tables(quick(tmp_path))["Which stack in which situation"])
    assert [row["situation"] for row in found] == [each.situation for each in situations()]
    assert found[1]["see"] == "Against ddp" and found[1]["favours"] == "can't tell"
    (counted,) = [row for row in found if row["see"] == "What using a stack takes"]
    assert counted["favours"] == "counted, not judged"
