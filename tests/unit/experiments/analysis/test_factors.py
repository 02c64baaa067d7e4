"""Main effects and interactions: what was put in is found, and what can't be told apart is named."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.factors import Recipes, recipes
from experiments.analysis.figures import figures_of
from experiments.campaign.plan import PlannedRun
from experiments.records.record import Record
from experiments.report.sections.factors import factors_once_table, factors_table
from tests.unit.experiments.analysis.test_figures import of_specification
from tests.unit.experiments.made_up_records import campaign, record, spec

Factors = Mapping[str, Sequence[Any]]
TWO: dict[str, Sequence[Any]] = {"threads": [1, 2], "reporting": ["epoch", "step"]}


def found_in(
    folder: Path,
    step_ms: Callable[[str, dict[str, Any]], float],
    seeds: int = 5,
    factors: Factors = TWO,
    keep: Callable[[str, dict[str, Any]], bool] = lambda *_: True,
    noise_ms: float = 1.0,
) -> list[Recipes]:
    """What the analysis finds in runs of ddp and spark whose steps take so long, and noise."""
    return found_by(folder, made(step_ms, factors, seeds, keep, noise_ms))


def found_by(folder: Path, runs: Sequence[tuple[PlannedRun, Record]]) -> list[Recipes]:
    """What the analysis finds in these runs."""
    return recipes(figures_of(campaign(folder, [run for run, _ in runs], [found for _, found in runs])))


def made(
    step_ms: Callable[[str, dict[str, Any]], float],
    factors: Factors,
    seeds: int,
    keep: Callable[[str, dict[str, Any]], bool] = lambda *_: True,
    noise_ms: float = 1.0,
) -> list[tuple[PlannedRun, Record]]:
    """Such runs, with their records."""
    noise, runs = random.Random(1), []
    for stack, *values in itertools.product(["ddp", "spark"], *factors.values()):
        settings = dict(zip(factors, values, strict=True))
        for seed in range(1, seeds + 1) if keep(stack, settings) else ():
            one = spec(stack, 2, seed)
            conditions = one.conditions.model_copy(update=settings)
            specification = one.model_copy(update={"conditions": conditions})
            ms = step_ms(stack, settings) + 3 * seed + noise.gauss(0, noise_ms)  # a seed's own shift cancels
            train_s = ms / 1000 * specification.work.steps
            found = record(stack, 2, train_s, train_s + 9, seed, **of_specification(specification))
            axes = {"stack": stack, "workers": 2, "epochs": 2, "seed": seed} | settings
            planned = PlannedRun(run_id=specification.run_id, axes=axes, specification=specification)
            runs.append((planned, found))
    return runs


def test_what_costs_any_stack_is_no_interaction_and_what_costs_one_more_is(tmp_path: Path) -> None:
    def step_ms(stack: str, given: dict[str, Any]) -> float:
        on_spark = 4 + 12 * int(given["reporting"] == "step")
        return 50 + 20 * int(given["threads"] == 2) + (on_spark if stack == "spark" else 0)

    (found,) = found_in(tmp_path, step_ms)
    assert (found.baseline, found.other, found.workers, found.cells, found.of) == ("ddp", "spark", 2, 8, 8)
    assert found.stack_alone.mean == pytest.approx(4, abs=2)
    threads, reporting = found.effects
    assert (threads.factor, threads.value, threads.first) == ("threads", 2, 1)
    for each in (threads.on_baseline, threads.on_other):
        assert each.low is not None and each.high is not None and 0 < each.low < 20 < each.high
    assert threads.more_on_other.low is not None and threads.more_on_other.high is not None
    assert threads.more_on_other.low < 0 < threads.more_on_other.high
    assert reporting.on_baseline.low is not None and reporting.on_baseline.high is not None
    assert reporting.on_baseline.low < 0 < reporting.on_baseline.high
    assert reporting.more_on_other.low is not None and 0 < reporting.more_on_other.low < 12
    assert not found.confounded
    for each in found.costs["step_ms"].differences:
        assert each.p is not None and each.low is not None and each.high is not None
        assert (each.p < 0.05) == (not each.low < 0 < each.high)


@pytest.mark.parametrize(
    ("ddp", "spark", "said"),
    [
        (0, 0, "no effect is shown"),
        (20, 20, "costs both; no difference between them is shown"),
        (0, 20, "costs spark more than ddp"),
        (-20, -20, "saves both; no difference between them is shown"),
        (20, 0, "costs spark less than ddp"),
    ],
)
def test_the_report_says_no_more_than_the_intervals_show(
    tmp_path: Path, ddp: float, spark: float, said: str
) -> None:
    def step_ms(stack: str, given: dict[str, Any]) -> float:
        return 50 + (ddp if stack == "ddp" else spark) * int(given["threads"] == 2)

    table = factors_table(found_in(tmp_path, step_ms, factors={"threads": [1, 2]}))
    itself, threads = table.texts
    assert itself[:6] == ["spark", "2", "2", "unexplained: the stack itself", "", "ddp"]
    assert itself[-1] == "no difference is shown"
    assert threads[3:7] == ["threads", "2", "1", "5"] and threads[-1] == said
    assert not table.after and "explains nothing of a ratio to ddp" in table.before


def test_the_report_says_what_of_the_design_was_not_run(tmp_path: Path) -> None:
    found = found_in(
        tmp_path, lambda *_: 50.0, keep=lambda stack, given: stack == "spark" or given["threads"] == 1
    )
    assert factors_table(found).after == [
        "spark, 2 workers, 2 epochs: 6 of the 8 cells of a full factorial were run.",
        "spark, 2 workers, 2 epochs: the runs can't tell apart, so it is left out: threads 2 on ddp "
        "and threads 2 on spark.",
    ]
    assert factors_table([]).rows == []


def test_a_fraction_that_tells_all_apart_will_do(tmp_path: Path) -> None:
    factors: Factors = TWO | {"printed_lines": [0, 1]}

    def some(stack: str, given: dict[str, Any]) -> bool:
        del stack
        high = [given["threads"] == 2, given["reporting"] == "step", given["printed_lines"] == 1]
        return high.count(True) % 2 == 0  # half of the factorial: the third factor follows from the other two

    (found,) = found_in(
        tmp_path, lambda _, given: 50 + 15 * int(given["printed_lines"] == 1), factors=factors, keep=some
    )
    assert (found.cells, found.of, found.confounded) == (8, 16, [])
    lines = next(each for each in found.effects if each.factor == "printed_lines")
    assert lines.on_baseline.mean == pytest.approx(15, abs=2)
    assert lines.more_on_other.mean == pytest.approx(0, abs=3)


def test_a_fraction_says_where_two_factors_together_look_like_a_third(tmp_path: Path) -> None:
    factors: Factors = TWO | {"printed_lines": [0, 1]}

    def half(stack: str, given: dict[str, Any]) -> bool:
        del stack
        high = [given["threads"] == 2, given["reporting"] == "step", given["printed_lines"] == 1]
        return high.count(True) % 2 == 0

    def step_ms(_: str, given: dict[str, Any]) -> float:
        return 50 + 20 * int(given["threads"] == 2 and given["reporting"] == "step")

    (found,) = found_in(tmp_path / "half", step_ms, factors=factors, keep=half)
    assert found.mixed == {
        "threads": [("reporting", "printed_lines")],
        "reporting": [("threads", "printed_lines")],
        "printed_lines": [("threads", "reporting")],
    }
    table = factors_table([found])
    said = {row[3]: row[-1] for row in table.texts}
    # Nothing was printed that took any time.
    assert said["printed_lines"] == "saves both; no difference between them is shown; mixed, see below"
    assert (
        "spark, 2 workers, 2 epochs: what printed_lines costs is mixed with how two others change each "
        "other's cost: threads and reporting." in table.after
    )
    assert factors_once_table([found]).after == table.after[-3:]  # whose rows say "see below", too
    (whole,) = found_in(tmp_path / "whole", step_ms, factors=factors)
    assert not whole.mixed


def test_what_cannot_be_told_apart_is_named_and_left_out(tmp_path: Path) -> None:
    """As in a ladder: only one stack has the factor."""
    (found,) = found_in(
        tmp_path, lambda *_: 50.0, keep=lambda stack, given: stack == "spark" or given["threads"] == 1
    )
    assert [each.factor for each in found.effects] == ["reporting"]
    assert found.confounded == ["threads 2 on ddp", "threads 2 on spark"]
    assert found.in_stack_alone == []


def test_of_settings_that_only_change_together_none_is_named_as_what_costs(tmp_path: Path) -> None:
    factors: Factors = {"reporting": ["epoch", "step"], "threads": [1, 2], "printed_lines": [0, 1]}

    def recipe(_: str, given: dict[str, Any]) -> bool:
        return [given[name] == values[1] for name, values in factors.items()] in (
            [False, False, False],
            [True, True, False],
            [True, True, True],
        )

    def step_ms(_: str, given: dict[str, Any]) -> float:
        return 50 + 20 * float(given["threads"]) + 10 * float(given["printed_lines"])

    (found,) = found_in(tmp_path, step_ms, factors=factors, keep=recipe)
    (effect,) = found.effects
    assert effect.factor == "printed_lines" and effect.on_other.mean == pytest.approx(10, abs=2)
    levels = ("reporting step", "threads 2")
    assert found.confounded == [f"{level} on {stack}" for stack in ("ddp", "spark") for level in levels]


def test_what_only_one_stack_has_is_said_to_be_in_the_stack_itself(tmp_path: Path) -> None:
    (found,) = found_in(
        tmp_path, lambda *_: 50.0, keep=lambda stack, given: given["threads"] == (1 if stack == "ddp" else 2)
    )
    assert found.confounded == ["threads 2 on ddp", "threads 2 on spark"] == found.in_stack_alone
    said = "what the stack itself takes includes threads 2 on ddp and threads 2 on spark."
    assert factors_table([found]).after[-1] == f"spark, 2 workers, 2 epochs: {said}"


def test_without_further_axes_or_without_both_stacks_there_is_nothing(tmp_path: Path) -> None:
    assert found_in(tmp_path / "plain", lambda *_: 50.0, factors={}) == []
    assert found_in(tmp_path / "one", lambda *_: 50.0, keep=lambda stack, _: stack == "ddp") == []


def test_a_single_seed_and_times_without_spread_claim_nothing(tmp_path: Path) -> None:
    for name, seeds, noise_ms in (("single", 1, 1.0), ("no spread", 3, 0.0)):
        (found,) = found_in(
            tmp_path / name, lambda stack, _: 50 + 9 * (stack == "spark"), seeds=seeds, noise_ms=noise_ms
        )
        assert found.stack_alone.mean == pytest.approx(9, abs=4)
        for each in found.costs["step_ms"].differences:
            assert (each.p, each.low, each.high) == (None, None, None)


def test_a_seed_with_other_cells_is_left_out_and_not_taken_for_the_first_value(tmp_path: Path) -> None:
    def step_ms(stack: str, given: dict[str, Any]) -> float:
        return 50 + 9 * int(stack == "spark") + 1000 * int(given["threads"] == 3)

    runs = made(step_ms, {"threads": [1, 2, 3]}, seeds=3)
    # Seed 3 has 3 threads in the place of 2.
    kept = [
        (run, found)
        for run, found in runs
        if run.axes["threads"] == 1 or (run.axes["threads"] == 3) == (run.axes["seed"] == 3)
    ]
    (some,) = found_by(tmp_path, kept)
    assert some.seeds_left_out == 1 and [each.value for each in some.effects] == [2]
    assert some.effects[0].on_baseline.mean == pytest.approx(0, abs=3)
    assert factors_table([some]).after[1:] == [
        "spark, 2 workers, 2 epochs: 1 seed left out, for want of runs or because of other cells."
    ]


def made_with_seconds(
    outside_s: Callable[[str, dict[str, Any]], float], fixed_s: Callable[[str, dict[str, Any]], float]
) -> list[tuple[PlannedRun, Record]]:
    """Runs whose steps take 50 ms, and which take so long outside train_s and beyond the steps.

    The baseline's with the first values are there twice.
    """
    chance, runs = random.Random(3), []

    def twice(stack: str, given: dict[str, Any]) -> bool:
        return given["repetition"] == 1 or (stack == "ddp" and given["threads"] == 1)

    for run, found in made(lambda *_: 50.0, {"threads": [1, 2], "repetition": [1, 2]}, seeds=5, keep=twice):
        in_steps, stack = found.train_s or 0.0, found.specification.stack
        train_s = in_steps + fixed_s(stack, run.axes) + chance.gauss(0, 0.01)
        total_s = train_s + outside_s(stack, run.axes) + chance.gauss(0, 0.1)
        assert found.phases is not None
        named = sum(seconds for name, seconds in found.phases.items() if name != "other")
        changed = {
            "train_s": train_s,
            "total_s": total_s,
            "phases": found.phases | {"other": total_s - named},
            "epochs": [each.model_copy(update={"seconds": in_steps / 2}) for each in found.epochs],
        }
        runs.append((run, found.model_copy(update=changed)))
    return runs


def test_seconds_beyond_the_steps_and_outside_of_training_have_their_own_effects(tmp_path: Path) -> None:
    (found,) = found_by(
        tmp_path,
        made_with_seconds(
            lambda stack, given: (
                9 + 6 * (stack == "spark") + 5 * (stack == "spark") * (given["threads"] == 2)
            ),
            lambda _, given: 1 + 2 * (given["threads"] == 2),
        ),
    )
    launch, fixed = found.costs["launch_s"], found.costs["fixed_s"]
    assert launch.stack_alone.mean == pytest.approx(6, abs=0.3)
    assert launch.effects[0].on_baseline.mean == pytest.approx(0, abs=0.3)
    assert launch.effects[0].more_on_other.mean == pytest.approx(5, abs=0.4)
    assert fixed.stack_alone.mean == pytest.approx(0, abs=0.05)
    assert fixed.effects[0].on_baseline.mean == pytest.approx(2, abs=0.05)
    table = factors_once_table([found])
    assert [row[3:8] for row in table.texts] == [
        ["unexplained: the stack itself", "", "ddp", "in train_s, beyond the steps", "5"],
        ["threads", "2", "1", "in train_s, beyond the steps", "5"],
        ["unexplained: the stack itself", "", "ddp", "outside train_s", "5"],
        ["threads", "2", "1", "outside train_s", "5"],
    ]
    assert [row[-1] for row in table.texts] == [
        "no difference is shown",
        "costs both; no difference between them is shown",
        "it takes more by itself",
        "costs spark more than ddp",
    ]
    assert not table.after and not factors_once_table([]).rows


@pytest.mark.parametrize(
    ("extra_s", "said"),
    [
        (60.0, "the cause named first is the stack itself, which no factor here explains: +"),
        (0.0, "no cause is named, as no cost of the stack is clear of zero and above the noise floor."),
    ],
)
def test_with_an_a_a_test_the_report_names_the_largest_cause_in_noise_floors(
    tmp_path: Path, extra_s: float, said: str
) -> None:
    runs = made_with_seconds(lambda stack, _: 9 + extra_s * (stack == "spark"), lambda *_: 1.0)
    plan, records = [run for run, _ in runs], [each for _, each in runs]
    (found,) = recipes(figures_of(campaign(tmp_path, plan, records)), 0.01)
    assert found.floors.keys() == {"step_ms", "fixed_s", "launch_s"}
    usual_ms = (found.costs["step_ms"].stack_alone.floor or 0.0) / 0.01
    steps = records[0].specification.work.steps
    assert usual_ms == pytest.approx(59 + 1000 / steps, rel=0.02)  # seeds add 3 to 15 ms
    (remark,) = factors_table([found]).after
    assert remark.startswith(f"spark, 2 workers, 2 epochs: {said}")
    if extra_s:
        assert found.named is not None and found.named.measure == "launch_s"
        assert " s outside train_s, " in remark and remark.endswith(" noise floors.")


def test_where_not_every_run_says_what_its_steps_took_that_is_said(tmp_path: Path) -> None:
    first, *rest = made_with_seconds(lambda *_: 9.0, lambda *_: 1.0)
    (found,) = found_by(tmp_path, [(first[0], first[1].model_copy(update={"epochs": []})), *rest])
    assert found.costs.keys() == {"step_ms", "launch_s"}
    assert factors_once_table([found]).after == [
        "spark, 2 workers, 2 epochs: not every run says how long its steps took, so in train_s, beyond the "
        "steps is left out."
    ]


def test_with_few_seeds_the_report_says_what_the_intervals_come_from(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, lambda *_: 50.0, seeds=2)
    assert not found.by_seeds and found.stack_alone.low is not None and found.stack_alone.n == 2
    (remark,) = factors_table([found]).after
    assert remark.startswith("spark, 2 workers, 2 epochs: fewer than 5 seeds, so the intervals come from")
